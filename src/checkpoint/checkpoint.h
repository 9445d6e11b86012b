// What the user points at: a pipeline directory, a component directory, split files, one file. Says which it is and
// where each component lies; opens nothing but headers and configs.
#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "checkpoint/adapter.h"
#include "checkpoint/tensor_source.h"
#include "danqing/model.h"

namespace danqing {

/// One component as found on disk.
struct ComponentFiles {
  std::string role;                            ///< "transformer", "text_encoder", "vae", "pe"
  std::string class_name;                      ///< from model_index.json or config, e.g. "Mistral3Model"; may be empty
  std::filesystem::path path;                  ///< directory or file
  std::shared_ptr<const TensorSource> source;  ///< opened headers
  std::optional<Json> config;                  ///< config.json, absent for bare files
  std::optional<Json> generation_config;
  std::vector<AdapterUse> adapters;  ///< of the transformer
};

struct Checkpoint {
  std::filesystem::path root;
  std::string pipeline_class;  ///< "ErnieImagePipeline", "ZImagePipeline"; by tensor names if no index
  std::map<std::string, ComponentFiles> components;  ///< by role
  std::filesystem::path tokenizer, pe_tokenizer;     ///< directories (or tokenizer.json), empty if absent
  std::optional<Json> scheduler;                     ///< scheduler_config.json

  const ComponentFiles* find(std::string_view role) const;
};

/// Errors (bad_input): nothing there, not a model, an unsupported pipeline class, a component listed but missing.
/// Single files: kind and component are recognised by tensor names, never by the file's name.
Result<Checkpoint> open_checkpoint(const ModelPaths& paths);

/// What a bare tensor file holds, from its tensor names: "ernie_image transformer", "mistral text encoder",
/// "flux2 vae", "z_image transformer", ... ; empty if unknown. Table in kinds.cpp.
struct TensorKind {
  std::string pipeline_class;  ///< pipeline it belongs to, or empty when several use it
  std::string role;            ///< component role
  std::string description;
};
std::optional<TensorKind> recognise(const TensorSource& source);

}  // namespace danqing
