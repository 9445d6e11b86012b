// Safetensors shards that become one GGUF file while they arrive: tensor by tensor, so that neither the disk nor the
// memory ever holds them whole. At most the largest tensor lies in memory, or 256 MiB where that is more.
#pragma once
#include <filesystem>
#include <memory>
#include <vector>

#include "convert/plan.h"
#include "fetch/download.h"

namespace danqing::app {

class StreamQuantiser {
 public:
  /// Reads the shards' headers over the network. Errors: as read_range and plan_types; bad_input: a damaged header,
  /// weights that are quantised already.
  static Result<std::unique_ptr<StreamQuantiser>> plan(fetch::Http& http, std::vector<fetch::RemoteFile> shards,
                                                       DType type, const std::filesystem::path& out,
                                                       const fetch::DownloadOptions& options);
  ~StreamQuantiser();
  StreamQuantiser(const StreamQuantiser&) = delete;
  StreamQuantiser& operator=(const StreamQuantiser&) = delete;

  uint64_t output_bytes() const;
  uint64_t source_bytes() const;
  /// Of the source: what an interrupted run has converted already.
  uint64_t present() const;
  /// Writes part_of(out), goes on where an earlier run was interrupted, checks each shard's hash. publish() gives the
  /// name. Errors: as download; bad_input: values that cannot be converted.
  Result<fetch::Downloaded> run(int threads);

 private:
  StreamQuantiser() = default;
  struct Work;
  std::unique_ptr<Work> work_;
};

}  // namespace danqing::app
