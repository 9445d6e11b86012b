// Safetensors shards that are still elsewhere: their headers alone.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/tensor_source.h"
#include "fetch/digest.h"
#include "fetch/range.h"

namespace danqing::app {

struct Shard {
  fetch::RemoteFile file;
  std::string header;  ///< its first bytes, up to the data
  fetch::Identity identity;
};

/// Which of its hashes the hub gives.
fetch::Digest::Kind kind_of(const fetch::RemoteFile& file);
/// Reads the headers. The tensors in the order of their bytes, TensorInfo::file counts the shards; there is no data.
/// Errors: as read_range; bad_input: a damaged header, weights that are quantised already.
Result<std::shared_ptr<const TensorSource>> open_outline(fetch::Http& http,
                                                         const std::vector<std::unique_ptr<Shard>>& shards);

}  // namespace danqing::app
