// What a pulled model directory says about itself: .danqing/manifest.json.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"

namespace danqing::fetch {

struct ManifestFile {
  std::string path;
  uint64_t size = 0;
  std::string sha256;  ///< of the file as it lies here; empty until it is there
  std::string remote;  ///< what it was made from: the hub's hash, or size and ETag; with --quant of all shards
  int64_t mtime = 0;   ///< nanoseconds
};

struct Manifest {
  std::string source, endpoint, repository, revision, commit, quant;
  std::vector<std::string> urls;
  std::vector<ManifestFile> files;  ///< every file that belongs to the model, fetched or not
  bool complete = false;
  const ManifestFile* find(const std::string& path) const;
  ManifestFile* find(const std::string& path);
};

std::filesystem::path manifest_path(const std::filesystem::path& model);
/// Error (bad_input): none there, or not one of ours.
Result<Manifest> read_manifest(const std::filesystem::path& model);
/// Atomic and durable.
Result<void> write_manifest(const std::filesystem::path& model, const Manifest& manifest);
/// Size and time of modification; 0 and 0 when there is no such file.
std::pair<uint64_t, int64_t> stat_file(const std::filesystem::path& path);

/// Holds a model directory for one pull or removal; another process gets an Error (failed).
class FolderLock {
 public:
  static Result<FolderLock> take(const std::filesystem::path& model);
  FolderLock(FolderLock&& other) noexcept;
  FolderLock& operator=(FolderLock&&) = delete;
  ~FolderLock();

 private:
  FolderLock() = default;
  int fd_ = -1;
};

}  // namespace danqing::fetch
