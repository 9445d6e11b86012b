// The files that a model will have here, each with what it is made from.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "fetch/manifest.h"
#include "fetch/select.h"
#include "pull/quantise.h"

namespace danqing::app {

struct Item {
  std::string path;  ///< in the model's folder
  fetch::Stage stage = fetch::Stage::config;
  std::vector<fetch::RemoteFile> sources;  ///< one file, or the shards that are quantised into one
  bool quantise = false;
  std::string remote;  ///< what it is made from, as the manifest keeps it; empty: nobody says
  std::unique_ptr<StreamQuantiser> quantiser;
  bool done = false;  ///< lies here already

  /// Bytes that come over the network, where that is known.
  uint64_t source_bytes() const;
};

/// In the order in which they are fetched. `quant`: weights of denoiser, text encoder and enhancer become GGUF files,
/// and the indexes of their shards are not needed.
std::vector<Item> make_items(std::vector<fetch::Chosen> chosen, const std::string& quant);

std::string_view stage_name(fetch::Stage stage);

}  // namespace danqing::app
