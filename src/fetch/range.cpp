#include "fetch/range.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "base/text.h"
#include "base/try.h"

namespace danqing::fetch {
namespace {

bool ends_with(std::string_view s, std::string_view tail) {
  return s.size() >= tail.size() && s.substr(s.size() - tail.size()) == tail;
}

Error web_page(const RemoteFile& file) {
  return bad_input(
      "[pull] {}: expected the file, got a web page: a login page, or the network wants you to sign in "
      "(captive portal)?",
      shown_url(file.url));
}

bool looks_like_page(const RemoteFile& file, std::span<const std::byte> bytes) {
  std::string_view s(reinterpret_cast<const char*>(bytes.data()), std::min<size_t>(bytes.size(), 64));
  while (!s.empty() && (s[0] == ' ' || s[0] == '\n' || s[0] == '\r' || s[0] == '\t')) s.remove_prefix(1);
  std::string head(s.substr(0, 14));
  for (char& c : head)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  if (ends_with(file.path, ".html") || ends_with(file.path, ".md")) return false;
  return head == "<!doctype html" || head.rfind("<html", 0) == 0;
}

Result<void> check_kind(const RemoteFile& file, const HttpHead& head) {
  const bool page = head.content_type.rfind("text/html", 0) == 0;
  if (page && !ends_with(file.path, ".html") && !ends_with(file.path, ".md")) return web_page(file);
  return {};
}

HttpError wrong_length(const RemoteFile& file, uint64_t got) {
  return {
      bad_input("[pull] {}: expected {} bytes, got {}", shown_url(file.url), file.size.value_or(0), got), true, 0, {}};
}

HttpError cut_short(const RemoteFile& file, uint64_t at) {
  return {fail(ErrorCode::failed, "[pull] {}: the connection ended at byte {}", shown_url(file.url), at), true, 0, {}};
}

/// One piece of work over several tries: what the callbacks of a try find out.
struct Try {
  std::optional<RangeEnd> end;
  std::optional<HttpError> again;  ///< the answer is wrong but another may be right
  bool stopped = false;
};

}  // namespace

bool Identity::same(const HttpHead& head) {
  const std::lock_guard lock(mutex_);
  const std::string& mark = !head.etag.empty() ? head.etag : head.last_modified;
  if (mark.empty()) return true;
  if (etag_.empty()) etag_ = mark;
  return etag_ == mark;
}

std::string Identity::if_range() const {
  const std::lock_guard lock(mutex_);
  return !etag_.empty() && etag_[0] == '"' ? etag_ : "";
}

void Identity::forget() {
  const std::lock_guard lock(mutex_);
  etag_.clear();
}

std::string Identity::etag() const {
  const std::lock_guard lock(mutex_);
  return etag_;
}

Result<RangeEnd> fetch_range(Http& http, const RemoteFile& file, Identity& identity, ByteRange range,
                             const RangeSink& sink, const std::function<bool()>& stop) {
  Patience patience(http);
  uint64_t at = range.begin;
  while (at < range.end) {
    Try t;
    HttpRequest request{.url = file.url, .range = {}, .if_range = identity.if_range()};
    const bool whole = at == 0 && file.size && range.end == *file.size;
    if (!whole) request.range = ByteRange{at, range.end};
    const auto on_head = [&](const HttpHead& h) -> Result<bool> {
      DQ_CHECK(check_kind(file, h));
      const auto total = h.status == 206 ? h.total : h.length;
      if (h.status == 200 && !whole) {
        const bool other = (total && file.size && *total != *file.size) || !identity.same(h);
        t.end = other ? RangeEnd::changed : RangeEnd::no_ranges;
      } else if (total && file.size && *total != *file.size) {
        t.again = wrong_length(file, *total);
      } else if (!identity.same(h)) {
        t.end = RangeEnd::changed;
      } else if (h.status == 206 && (!h.range || h.range->begin != at || h.range->end > range.end)) {
        t.again = HttpError{
            bad_input("[pull] {}: expected bytes {} to {}, got another range", shown_url(file.url), at, range.end - 1),
            true,
            0,
            {}};
      }
      return !t.end && !t.again;
    };
    const auto on_body = [&](std::span<const std::byte> bytes) -> Result<void> {
      if (stop && stop()) {
        t.stopped = true;
        return fail(ErrorCode::cancelled, "stopped");
      }
      if (bytes.size() > range.end - at) {
        t.again = wrong_length(file, at + bytes.size());
        return t.again->error;
      }
      if (at == 0 && looks_like_page(file, bytes)) return web_page(file);
      DQ_CHECK(sink(at, bytes));
      at += bytes.size();
      patience.progress();
      return {};
    };
    HttpAnswer a = http.get(request, on_head, on_body);
    if (t.stopped) return RangeEnd::done;
    if (t.end) return *t.end;
    if (a.error && a.error->status == 416) return RangeEnd::changed;
    if (t.again) a.error = t.again;
    if (!a.error && at < range.end) a.error = cut_short(file, at);
    if (a.error) DQ_CHECK(patience.after(*a.error));
  }
  return RangeEnd::done;
}

Result<uint64_t> fetch_whole(Http& http, const RemoteFile& file, Identity& identity, const RangeSink& sink,
                             const std::function<Result<void>()>& restart) {
  Patience patience(http);
  for (;;) {
    Try t;
    uint64_t at = 0;
    DQ_CHECK(restart());
    const auto on_head = [&](const HttpHead& h) -> Result<bool> {
      DQ_CHECK(check_kind(file, h));
      identity.forget();
      identity.same(h);
      if (h.length && file.size && *h.length != *file.size) t.again = wrong_length(file, *h.length);
      return !t.again;
    };
    const auto on_body = [&](std::span<const std::byte> bytes) -> Result<void> {
      if (file.size && bytes.size() > *file.size - at) {
        t.again = wrong_length(file, at + bytes.size());
        return t.again->error;
      }
      if (at == 0 && looks_like_page(file, bytes)) return web_page(file);
      DQ_CHECK(sink(at, bytes));
      at += bytes.size();
      return {};
    };
    HttpAnswer a = http.get({.url = file.url, .range = {}, .if_range = {}}, on_head, on_body);
    if (t.again) a.error = t.again;
    if (!a.error && file.size && at != *file.size) a.error = cut_short(file, at);
    if (!a.error) return at;
    DQ_CHECK(patience.after(*a.error));
  }
}

Result<void> read_range(Http& http, const RemoteFile& file, Identity& identity, ByteRange range,
                        std::span<std::byte> out, int connections, const std::function<void(int64_t)>& moved) {
  constexpr uint64_t kLeast = 8 << 20;
  const uint64_t parts =
      std::clamp<uint64_t>(range.size() / kLeast, 1, static_cast<uint64_t>(std::max(1, connections)));
  const uint64_t each = (range.size() + parts - 1) / parts;
  std::atomic<bool> failed{false};
  std::mutex mutex;
  std::optional<Error> error;
  const auto work = [&](uint64_t i) {
    const ByteRange mine{range.begin + i * each, std::min(range.end, range.begin + (i + 1) * each)};
    const auto sink = [&](uint64_t offset, std::span<const std::byte> bytes) -> Result<void> {
      std::memcpy(out.data() + (offset - range.begin), bytes.data(), bytes.size());
      if (moved) moved(static_cast<int64_t>(bytes.size()));
      return {};
    };
    const auto end = fetch_range(http, file, identity, mine, sink, [&] { return failed.load(); });
    if (end && *end == RangeEnd::done) return;
    failed = true;
    const std::lock_guard lock(mutex);
    if (error) return;
    if (!end)
      error = end.error();
    else if (*end == RangeEnd::no_ranges)
      error = fail(ErrorCode::failed,
                   "[pull] {}: the server sends no parts of files, which --quant needs; pull it whole and run danqing "
                   "convert",
                   shown_url(file.url));
    else
      error = fail(ErrorCode::failed, "[pull] {}: the file changed while it was fetched; run the same command again",
                   shown_url(file.url));
  };
  std::vector<std::thread> threads;
  for (uint64_t i = 1; i < parts; ++i) threads.emplace_back(work, i);
  work(0);
  for (std::thread& t : threads) t.join();
  if (error) return *error;
  return {};
}

}  // namespace danqing::fetch
