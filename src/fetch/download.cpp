#include "fetch/download.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>

#include "base/text.h"
#include "base/try.h"
#include "fetch/journal.h"

namespace danqing::fetch {
namespace {

namespace fs = std::filesystem;

constexpr int kRestarts = 3;

Error disk_error(const char* what, const fs::path& path) {
  return fail(ErrorCode::failed, "[pull] cannot {} {}: {}", what, path.string(), std::strerror(errno));
}

uint64_t segment_of(uint64_t size, uint64_t wanted) {
  constexpr uint64_t kMiB = 1 << 20;
  if (wanted > 0) return std::max(wanted, size / 100'000 + 1);
  return std::clamp<uint64_t>((size / 16 + kMiB - 1) / kMiB * kMiB, 8 * kMiB, 128 * kMiB);
}

JournalKey key_of(const RemoteFile& f) {
  return {.size = f.size.value_or(0), .sha256 = f.sha256, .git_sha1 = f.git_sha1, .url = f.url, .etag = {}};
}

void tell(const std::function<void(int64_t)>& f, int64_t n) {
  if (f) f(n);
}

/// All segments that are missing, several at a time.
class Workers {
 public:
  Workers(Http& http, const RemoteFile& file, Journal& journal, Identity& identity, const DownloadOptions& o)
      : http_(http), file_(file), journal_(journal), identity_(identity), o_(o), segments_(journal.segments()) {}

  Result<RangeEnd> run() {
    size_t missing = 0;
    for (const Segment& s : segments_) missing += s.complete() ? 0 : 1;
    const size_t n = std::min(missing, static_cast<size_t>(std::max(1, o_.connections)));
    std::vector<std::thread> threads;
    for (size_t i = 1; i < n; ++i) threads.emplace_back([this] { work(); });
    work();
    for (std::thread& t : threads) t.join();
    if (error_) return *error_;
    return end_;
  }

 private:
  void work() {
    for (;;) {
      const size_t i = next_++;
      if (i >= segments_.size() || stop_) return;
      const Segment& s = segments_[i];
      if (s.complete()) continue;
      const auto sink = [&](uint64_t, std::span<const std::byte> bytes) -> Result<void> {
        if (!noted_.exchange(true)) DQ_CHECK(journal_.set_etag(identity_.etag()));
        DQ_CHECK(journal_.write(i, bytes));
        tell(o_.moved, static_cast<int64_t>(bytes.size()));
        tell(o_.present, static_cast<int64_t>(bytes.size()));
        return {};
      };
      const auto end = fetch_range(http_, file_, identity_, {s.range.begin + s.done, s.range.end}, sink,
                                   [this] { return stop_.load(); });
      if (end && *end == RangeEnd::done) continue;
      stop_ = true;
      const std::lock_guard lock(mutex_);
      if (!end && !error_) error_ = end.error();
      if (end && end_ == RangeEnd::done) end_ = *end;
      return;
    }
  }

  Http& http_;
  const RemoteFile& file_;
  Journal& journal_;
  Identity& identity_;
  const DownloadOptions& o_;
  std::vector<Segment> segments_;
  std::atomic<size_t> next_{0};
  std::atomic<bool> stop_{false}, noted_{false};
  std::mutex mutex_;
  std::optional<Error> error_;
  RangeEnd end_ = RangeEnd::done;
};

/// A file of known size.
Result<std::string> by_segments(Http& http, const RemoteFile& file, const fs::path& part, const DownloadOptions& o,
                                bool& resumed) {
  DQ_TRY(const auto journal, Journal::open(part, key_of(file), segment_of(*file.size, o.segment)));
  resumed = journal->resumed();
  tell(o.present, static_cast<int64_t>(journal->done()));
  for (int round = 0;; ++round) {
    Identity identity(journal->etag());
    DQ_TRY(const RangeEnd end, Workers(http, file, *journal, identity, o).run());
    if (end == RangeEnd::done) {
      DQ_CHECK(journal->sync());
      return identity.etag();
    }
    if (round == kRestarts)
      return fail(ErrorCode::failed, "[pull] {}: the file changed {} times while it was fetched", shown_url(file.url),
                  kRestarts);
    http.say(fmt::format("{}: {}", one_line(file.path),
                         end == RangeEnd::changed ? "another version than before; it begins anew"
                                                  : "the server sends no parts of files; one stream"));
    const auto start_again = [&](bool one) -> Result<void> {
      tell(o.present, -static_cast<int64_t>(journal->done()));
      resumed = false;
      return journal->reset(one);
    };
    if (end == RangeEnd::changed) {
      DQ_CHECK(start_again(false));
      continue;
    }
    const auto sink = [&](uint64_t, std::span<const std::byte> bytes) -> Result<void> {
      DQ_CHECK(journal->write(0, bytes));
      tell(o.moved, static_cast<int64_t>(bytes.size()));
      tell(o.present, static_cast<int64_t>(bytes.size()));
      return {};
    };
    DQ_CHECK(fetch_whole(http, file, identity, sink, [&] { return start_again(true); }));
    DQ_CHECK(journal->sync());
    return identity.etag();
  }
}

/// A file whose size nobody says: one stream, whole or not at all.
Result<std::string> unmeasured(Http& http, const RemoteFile& file, const fs::path& part, const DownloadOptions& o) {
  const int fd = ::open(part.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (fd < 0) return disk_error("write", part);
  struct Close {
    int fd;
    ~Close() { ::close(fd); }
  } close{fd};
  Identity identity;
  int64_t there = 0;
  const auto sink = [&](uint64_t offset, std::span<const std::byte> bytes) -> Result<void> {
    for (size_t at = 0; at < bytes.size();) {
      const ssize_t n = ::pwrite(fd, bytes.data() + at, bytes.size() - at, static_cast<off_t>(offset + at));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return disk_error("write", part);
      at += static_cast<size_t>(n);
    }
    there += static_cast<int64_t>(bytes.size());
    tell(o.moved, static_cast<int64_t>(bytes.size()));
    tell(o.present, static_cast<int64_t>(bytes.size()));
    return {};
  };
  const auto restart = [&]() -> Result<void> {
    tell(o.present, -there);
    there = 0;
    if (::ftruncate(fd, 0) != 0) return disk_error("write", part);
    return {};
  };
  DQ_CHECK(fetch_whole(http, file, identity, sink, restart));
  if (::fsync(fd) != 0) return disk_error("write", part);
  return identity.etag();
}

}  // namespace

fs::path part_of(const fs::path& path) { return path.string() + ".part"; }

uint64_t bytes_present(const RemoteFile& file, const fs::path& path) {
  return file.size ? Journal::present(part_of(path), key_of(file)) : 0;
}

Result<Downloaded> download(Http& http, const RemoteFile& file, const fs::path& path, const DownloadOptions& o) {
  const fs::path part = part_of(path);
  std::error_code ec;
  fs::create_directories(path.parent_path(), ec);
  if (ec) return fail(ErrorCode::failed, "[pull] cannot create {}: {}", path.parent_path().string(), ec.message());
  for (int round = 0;; ++round) {
    bool resumed = false;
    Downloaded out;
    if (file.size) {
      DQ_TRY(out.etag, by_segments(http, file, part, o, resumed));
    } else {
      DQ_TRY(out.etag, unmeasured(http, file, part, o));
    }
    out.size = fs::file_size(part, ec);
    const auto go_on = [&](uint64_t) { return !http.cancelled(); };
    DQ_TRY(out.sha256, digest_file(part, Digest::Kind::sha256, go_on));
    std::string got = out.sha256, expected = file.sha256;
    if (expected.empty() && !file.git_sha1.empty()) {
      DQ_TRY(got, digest_file(part, Digest::Kind::git_sha1, go_on));
      expected = file.git_sha1;
    }
    if (expected.empty() || got == expected) return out;
    Journal::remove(part);
    tell(o.present, -static_cast<int64_t>(out.size));
    // What an earlier run left may be the reason; that is worth one more try.
    if (resumed && round == 0) {
      http.say(fmt::format("{}: what an earlier run left is damaged; it begins anew", one_line(file.path)));
      continue;
    }
    return bad_input(
        "[pull] {}: expected the hash {}..., got {}...: damaged on the way or not the file that the hub "
        "lists; nothing of it is kept",
        shown_url(file.url), expected.substr(0, 12), got.substr(0, 12));
  }
}

Result<void> publish(const fs::path& path) {
  const fs::path part = part_of(path);
  if (::rename(part.c_str(), path.c_str()) != 0) return disk_error("write", path);
  const int folder = ::open(path.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder >= 0) {
    ::fsync(folder);
    ::close(folder);
  }
  std::error_code ec;
  fs::remove(Journal::path_of(part), ec);
  return {};
}

}  // namespace danqing::fetch
