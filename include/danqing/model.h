// Which files make up a model, and what is known about it before anything is computed.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace danqing {

/// Where the parts of a model are. `model` alone is enough for a diffusers directory; the others override or supply
/// parts.
struct ModelPaths {
  std::filesystem::path model;  ///< directory or single file; may be empty if the parts are all given
  std::filesystem::path transformer, text_encoder, vae, pe, tokenizer, pe_tokenizer, scheduler;
  /// LoRA files for the transformer, and how strongly each changes it.
  struct Adapter {
    std::filesystem::path file;
    float weight = 1;
  };
  std::vector<Adapter> adapters;
};

struct ComponentInfo {
  std::string role;  ///< "transformer", "text_encoder", "vae", "pe"
  std::string class_name;
  std::string dtypes;  ///< "bf16", "q4_K + f32"
  uint64_t parameters = 0;
  uint64_t bytes = 0;  ///< in the files
};

/// What a request gets when it doesn't say: from the checkpoint first (scheduler_config.json, danqing.json), else by
/// kind.
struct ModelDefaults {
  int width = 1024, height = 1024;
  int num_inference_steps = 50;
  float guidance_scale = 4.0f;
  float shift = 1.0f;
  bool prompt_enhancer = false;
  std::vector<std::pair<int, int>> suggested_sizes;  ///< width, height; empty = any
  std::string source;                                ///< where the figures come from, for the user
};

struct ModelInfo {
  std::string name;            ///< the directory's or file's name
  std::string pipeline_class;  ///< "ErnieImagePipeline"
  std::vector<ComponentInfo> components;
  ModelDefaults defaults;
  int size_multiple = 16;  ///< width and height must be multiples of this
  int max_side = 16384;    ///< and at most this
  bool has_prompt_enhancer = false;
};

}  // namespace danqing
