// How far a file has come: a small file beside its part that survives kill -9, and after a power cut is believed only
// as far as the disk was told to keep the data.
#pragma once
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "fetch/http.h"

namespace danqing::fetch {

struct JournalKey {
  uint64_t size = 0;
  std::string sha256, git_sha1, url;  ///< what is fetched; a journal of something else is not used
  std::string etag;                   ///< of the answers so far
};

struct Segment {
  ByteRange range;
  uint64_t done = 0;  ///< bytes from its beginning
  bool complete() const { return done == range.size(); }
};

/// Thread-safe. Owns the part file: data is written through it, so that what is noted is there.
class Journal {
 public:
  /// Takes up what lies there if it is of the same file, else begins anew with segments of `segment` bytes.
  static Result<std::unique_ptr<Journal>> open(const std::filesystem::path& part, const JournalKey& key,
                                               uint64_t segment);
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  const std::string& etag() const { return key_.etag; }
  std::vector<Segment> segments() const;
  uint64_t done() const;
  bool resumed() const { return resumed_; }
  /// The first answer's ETag.
  Result<void> set_etag(const std::string& etag);
  /// The next bytes of a segment.
  Result<void> write(size_t segment, std::span<const std::byte> bytes);
  /// Nothing is there any more. `one`: a single segment, for a server without ranges.
  Result<void> reset(bool one);
  /// All data to the disk.
  Result<void> sync();
  static std::filesystem::path path_of(const std::filesystem::path& part);
  static void remove(const std::filesystem::path& part);  ///< part and journal
  /// Bytes that lie there already for that file.
  static uint64_t present(const std::filesystem::path& part, const JournalKey& key);

 private:
  Journal() = default;
  Result<void> write_head();
  Result<void> note(size_t segment);
  bool load();
  std::filesystem::path part_;
  JournalKey key_;
  uint64_t segment_bytes_ = 0, head_bytes_ = 0, unsynced_ = 0;
  std::vector<Segment> segments_;
  std::vector<uint64_t> synced_;
  int data_ = -1, notes_ = -1;
  bool resumed_ = false;
  mutable std::mutex mutex_;
};

}  // namespace danqing::fetch
