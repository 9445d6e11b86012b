// One file, whole and checked, or nothing under its name.
#pragma once
#include <filesystem>

#include "fetch/digest.h"
#include "fetch/range.h"

namespace danqing::fetch {

struct DownloadOptions {
  int connections = 4;
  uint64_t segment = 0;                  ///< bytes; 0: by the file's size
  std::function<void(int64_t)> present;  ///< bytes of the file more (or, after a restart, less) that are there
  std::function<void(int64_t)> moved;    ///< bytes that came over the network
};

struct Downloaded {
  uint64_t size = 0;
  std::string sha256, etag;
};

std::filesystem::path part_of(const std::filesystem::path& path);
/// Fetches into part_of(path), goes on from what lies there, checks length and hash, has it written to the disk. It
/// does not take its name: publish() does. Errors: as fetch_range; bad_input: a wrong length or hash (the part is
/// removed); failed: the disk.
Result<Downloaded> download(Http& http, const RemoteFile& file, const std::filesystem::path& path,
                            const DownloadOptions& options);
/// Gives the part its name, atomically and durably, replacing what was there.
Result<void> publish(const std::filesystem::path& path);
/// Bytes of the file that lie in its part already.
uint64_t bytes_present(const RemoteFile& file, const std::filesystem::path& path);

}  // namespace danqing::fetch
