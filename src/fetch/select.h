// Which of a repository's files are fetched, and in which order.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "fetch/remote.h"

namespace danqing::fetch {

struct Filters {
  std::vector<std::string> include,
      exclude;          ///< of the whole path or the file's name; * ? []; "folder/" means all in it
  std::string variant;  ///< "fp16": X.fp16.safetensors in place of X.safetensors
};

/// Configs and tokenizers come before everything, then the weights in the order in which a picture needs them.
enum class Stage { config, text_encoder, transformer, vae, enhancer, other };

struct Chosen {
  RemoteFile file;
  Stage stage = Stage::config;
  std::string component;  ///< first folder of the path; empty for files at the top
};
struct Skipped {
  std::string path, reason;
};
struct Selection {
  std::vector<Chosen> files;
  std::vector<Skipped> skipped;
};

bool is_weights(std::string_view path);
bool path_matches(const std::string& pattern, const std::string& path);
/// Without patterns: what the engine reads (safetensors, GGUF, configs, tokenizers, the licence and the README); other
/// formats of the same weights, pictures and code are left out. `index`: model_index.json, where there is one; folders
/// that it does not name are left out. Errors (usage): patterns that leave nothing, several GGUF files without a
/// choice, a variant that there is not.
Result<Selection> select_files(const std::vector<RemoteFile>& files, const std::optional<Json>& index,
                               const Filters& filters);

}  // namespace danqing::fetch
