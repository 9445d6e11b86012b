// One model directory under verification: where its goldens are and how its parts are loaded.
#pragma once
#include <memory>
#include <string>

#include "checkpoint/checkpoint.h"
#include "danqing/engine.h"
#include "device/weights.h"
#include "verify/suite.h"

namespace danqing::app::verify {

struct Model {
  Suite& suite;
  std::filesystem::path directory;
  std::string pipeline;  ///< the class that model_index.json names

  bool is_z_image() const { return pipeline == "ZImagePipeline"; }
  std::filesystem::path golden_directory() const { return directory / "golden"; }
  std::filesystem::path stem(const std::string& name) const { return golden_directory() / name; }
  bool has(const std::string& name) const;  ///< golden/NAME.safetensors or its JSON exists
  /// The stage of a golden file: "ernie-tiny/dit_f32", or "dit_f32" where the tree is the model itself.
  std::string stage(const std::string& name) const;
  /// The golden file; an empty one where there is none (its values are then missing).
  std::shared_ptr<Golden> golden(const std::string& name) const;

  /// `bf16`: with transformer_bf16 in place of transformer, if the directory has it.
  ModelPaths paths(bool bf16) const;
  /// One component with its config; error if the directory lacks it.
  Result<ComponentFiles> component(const std::string& role, bool bf16 = false) const;
  Result<std::unique_ptr<Engine>> open_engine(bool bf16) const;
};

}  // namespace danqing::app::verify
