#include "pull/quantise.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <future>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "base/try.h"
#include "convert/file.h"
#include "device/convert.h"
#include "fetch/journal.h"
#include "pull/shards.h"

namespace danqing::app {
namespace {

namespace fs = std::filesystem;
using fetch::ByteRange;
using fetch::Digest;

constexpr uint64_t kBlock = 64 << 20;    ///< small tensors are fetched together
constexpr uint64_t kMemory = 256 << 20;  ///< blocks in memory together, unless one tensor is larger

Error disk_error(const char* what, const fs::path& path) {
  return fail(ErrorCode::failed, "[pull] cannot {} {}: {}", what, path.string(), std::strerror(errno));
}

}  // namespace

struct StreamQuantiser::Work {
  /// Tensors that are fetched together: neighbours in one shard.
  struct Block {
    size_t shard = 0, first = 0, end = 0;  ///< tensors first ... end - 1
    ByteRange range;
  };

  fetch::Http& http;
  fetch::DownloadOptions options;
  fs::path part;
  std::vector<std::unique_ptr<Shard>> shards;
  std::shared_ptr<const TensorSource> outline;
  std::vector<PlannedTensor> plan;
  TensorLayout layout;
  std::vector<Block> blocks;
  std::string key;
  uint64_t largest = 0;
  int fd = -1;

  Work(fetch::Http& h, fetch::DownloadOptions o, const fs::path& out)
      : http(h), options(std::move(o)), part(fetch::part_of(out)) {}
  ~Work() {
    if (fd >= 0) ::close(fd);
  }

  // ---- the plan

  Result<void> prepare(DType type, const fs::path& out) {
    DQ_TRY(outline, open_outline(http, shards));
    std::vector<bool> matched;
    DQ_TRY(plan, plan_types(*outline, type, {}, TensorSource::Format::gguf, matched));
    DQ_TRY(layout, layout_tensors(TensorSource::Format::gguf, output_tensors(plan),
                                  output_metadata(*outline, out, plan, TensorSource::Format::gguf, type)));
    make_blocks();
    make_key();
    return {};
  }

  void make_blocks() {
    const uint64_t most = options.segment > 0 ? options.segment : kBlock;
    for (size_t i = 0; i < plan.size(); ++i) {
      const TensorInfo& t = *plan[i].stored;
      largest = std::max(largest, t.bytes);
      if (blocks.empty() || blocks.back().shard != t.file || blocks.back().range.size() + t.bytes > most)
        blocks.push_back({t.file, i, i, {t.offset, t.offset}});
      blocks.back().end = i + 1;
      blocks.back().range.end = t.offset + t.bytes;
    }
  }

  /// What the part would hold: of other shards, another type or another layout it is begun anew.
  void make_key() {
    std::string all = layout.header;
    for (const auto& s : shards) {
      all += s->header + s->file.path + "|" + s->file.sha256 + "|" + s->file.git_sha1;
      if (s->file.sha256.empty() && s->file.git_sha1.empty()) all += s->identity.etag();
    }
    key = fetch::sha256_of(all);
  }

  // ---- how far it is

  struct Place {
    size_t block = 0;  ///< the next one
    std::optional<Digest> digest;
  };

  Place load() const {
    const auto text = read_text(fetch::Journal::path_of(part), 1 << 20);
    std::error_code ec;
    if (!text || !fs::is_regular_file(part, ec)) return {};
    const auto json = parse_json(*text, "journal");
    if (!json || !json->is_object() || !json->contains("key") || (*json)["key"] != key) return {};
    const auto at = json->find("block"), state = json->find("digest");
    if (at == json->end() || !at->is_number_unsigned() || state == json->end() || !state->is_string()) return {};
    Place p{at->get<size_t>(), {}};
    if (p.block == 0 || p.block > blocks.size()) return {};
    if (p.block < blocks.size() && blocks[p.block].shard == blocks[p.block - 1].shard) {
      p.digest = Digest::restore(kind_of(shards[blocks[p.block].shard]->file), state->get<std::string>());
      if (!p.digest) return {};
    }
    return p;
  }

  /// The data is on the disk before it is said to be there.
  Result<void> save(const Place& p) {
    if (::fdatasync(fd) != 0) return disk_error("write", part);
    const Json json = {{"danqing", "pull quantised 1"},
                       {"key", key},
                       {"block", p.block},
                       {"digest", p.digest ? p.digest->state() : std::string()}};
    return write_file(fetch::Journal::path_of(part), dump_json(json) + "\n");
  }

  uint64_t source_up_to(size_t block) const {
    uint64_t n = 0;
    for (size_t i = 0; i < block; ++i) n += blocks[i].range.size();
    return n;
  }

  // ---- the work

  Result<void> write_at(uint64_t offset, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return disk_error("write", part);
      bytes = bytes.subspan(static_cast<size_t>(n));
      offset += static_cast<uint64_t>(n);
    }
    return {};
  }

  Result<std::vector<std::byte>> fetch_block(const Block& b) {
    std::vector<std::byte> bytes(b.range.size());
    Shard& s = *shards[b.shard];
    DQ_CHECK(fetch::read_range(http, s.file, s.identity, b.range, bytes, options.connections, [this](int64_t n) {
      if (options.moved) options.moved(n);
      if (options.present) options.present(n);
    }));
    return bytes;
  }

  Result<void> convert_block(const Block& b, std::span<const std::byte> bytes, int threads) {
    for (size_t i = b.first; i < b.end; ++i) {
      if (http.cancelled()) return fetch::wait_seconds(http, 0);
      const TensorInfo& t = *plan[i].stored;
      const int64_t count = element_count(t.shape);
      if (count == 0) continue;
      const int64_t row = t.shape.empty() ? 1 : t.shape.back();
      const StoredValues values(t.dtype, bytes.subspan(t.offset - b.range.begin, t.bytes), count, row);
      const auto sink = [&](size_t offset, std::span<const std::byte> piece) {
        return write_at(layout.offsets[i] + offset, piece);
      };
      const auto done = convert(values, plan[i].dtype, {.threads = threads}, sink);
      if (!done && done.error().code == ErrorCode::bad_input)
        return bad_input("[pull] {}: tensor '{}': {}; pull it without --quant", shards[b.shard]->file.path,
                         one_line(t.name), done.error().message);
      DQ_CHECK(done);
    }
    return {};
  }

  Digest begin_shard(const Shard& s) const {
    Digest d(kind_of(s.file), *s.file.size);
    d.update(std::as_bytes(std::span(s.header)));
    return d;
  }

  Result<void> open_part(Place& at) {
    fd = ::open(part.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0) return disk_error("write", part);
    if (at.block > 0) return {};
    std::error_code ec;
    fs::remove(fetch::Journal::path_of(part), ec);
    if (::ftruncate(fd, 0) != 0 || ::ftruncate(fd, static_cast<off_t>(layout.file_bytes)) != 0)
      return disk_error("write", part);
    return write_at(0, std::as_bytes(std::span(layout.header)));
  }

  /// After the last block of a shard: empty when the hash is right or not known.
  std::string wrong_hash(const Shard& s, const Digest& d) const {
    const std::string& expected = s.file.sha256.empty() ? s.file.git_sha1 : s.file.sha256;
    return expected.empty() || d.hex() == expected ? "" : d.hex();
  }

  void tell_present(int64_t n) const {
    if (options.present) options.present(n);
  }

  Result<void> run(int threads) {
    Place at = load();
    DQ_CHECK(open_part(at));
    tell_present(static_cast<int64_t>(source_up_to(at.block)));
    bool resumed = at.digest.has_value();
    std::future<Result<std::vector<std::byte>>> ahead;
    const auto settle = [&] {  // nothing may outlive an early return
      if (ahead.valid()) ahead.wait();
    };
    struct AtExit {
      std::function<void()> f;
      ~AtExit() { f(); }
    } at_exit{settle};
    while (at.block < blocks.size()) {
      const Block& b = blocks[at.block];
      const Shard& shard = *shards[b.shard];
      auto fetched = ahead.valid() ? ahead.get() : fetch_block(b);
      if (!fetched) return fetched.error();
      if (!at.digest) at.digest = begin_shard(shard);
      const size_t next = at.block + 1;
      if (next < blocks.size() && b.range.size() + blocks[next].range.size() <= std::max(kMemory, largest))
        ahead = std::async(std::launch::async, [this, next] { return fetch_block(blocks[next]); });
      at.digest->update(*fetched);
      DQ_CHECK(convert_block(b, *fetched, threads));
      at.block = next;
      if (next == blocks.size() || blocks[next].shard != b.shard) {
        const std::string got = wrong_hash(shard, *at.digest);
        if (!got.empty() && resumed) {  // what an earlier run left may be the reason
          const size_t fetched_too = ahead.valid() ? next + 1 : next;
          settle();
          ahead = {};
          http.say(fmt::format("{}: what an earlier run left is damaged; it begins anew", one_line(shard.file.path)));
          tell_present(-static_cast<int64_t>(source_up_to(fetched_too)));
          at = {};
          resumed = false;
          ::close(fd);
          DQ_CHECK(open_part(at));
          continue;
        }
        if (!got.empty()) {
          fetch::Journal::remove(part);
          return bad_input(
              "[pull] {}: expected the hash {}..., got {}...: damaged on the way or not the file that the "
              "hub lists; nothing of it is kept",
              fetch::shown_url(shard.file.url), (shard.file.sha256 + shard.file.git_sha1).substr(0, 12),
              got.substr(0, 12));
        }
        at.digest.reset();
        resumed = false;
      }
      DQ_CHECK(save(at));
    }
    if (::fsync(fd) != 0) return disk_error("write", part);
    return {};
  }
};

StreamQuantiser::~StreamQuantiser() = default;

Result<std::unique_ptr<StreamQuantiser>> StreamQuantiser::plan(fetch::Http& http, std::vector<fetch::RemoteFile> files,
                                                               DType type, const fs::path& out,
                                                               const fetch::DownloadOptions& options) {
  std::unique_ptr<StreamQuantiser> q(new StreamQuantiser);
  q->work_ = std::make_unique<Work>(http, options, out);
  for (fetch::RemoteFile& f : files) {
    q->work_->shards.push_back(std::make_unique<Shard>());
    q->work_->shards.back()->file = std::move(f);
  }
  DQ_CHECK(q->work_->prepare(type, out));
  return q;
}

uint64_t StreamQuantiser::output_bytes() const { return work_->layout.file_bytes; }
uint64_t StreamQuantiser::source_bytes() const { return work_->source_up_to(work_->blocks.size()); }
uint64_t StreamQuantiser::present() const { return work_->source_up_to(work_->load().block); }

Result<fetch::Downloaded> StreamQuantiser::run(int threads) {
  DQ_CHECK(work_->run(threads));
  fetch::Downloaded out{.size = work_->layout.file_bytes, .sha256 = {}, .etag = {}};
  DQ_TRY(out.sha256,
         fetch::digest_file(work_->part, Digest::Kind::sha256, [this](uint64_t) { return !work_->http.cancelled(); }));
  return out;
}

}  // namespace danqing::app
