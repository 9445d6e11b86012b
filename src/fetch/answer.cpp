// What a server's answer says: its header lines, and its status in words.
#include <charconv>

#include "base/try.h"
#include "fetch/http.h"

namespace danqing::fetch {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

std::string_view trimmed(std::string_view s) {
  const size_t a = s.find_first_not_of(" \t\r\n"), b = s.find_last_not_of(" \t\r\n");
  return a == std::string_view::npos ? std::string_view() : s.substr(a, b - a + 1);
}

std::optional<uint64_t> number(std::string_view s) {
  uint64_t v = 0;
  const auto [end, ec] = std::from_chars(s.data(), s.data() + s.size(), v);
  return ec == std::errc() && end == s.data() + s.size() && !s.empty() ? std::optional(v) : std::nullopt;
}

/// "bytes 0-99/1000", "bytes 0-99/*", "bytes */1000"
void read_content_range(std::string_view s, HttpHead& head) {
  if (lower(s.substr(0, 6)) != "bytes ") return;
  s.remove_prefix(6);
  const size_t slash = s.find('/'), dash = s.find('-');
  if (slash == std::string_view::npos) return;
  head.total = number(trimmed(s.substr(slash + 1)));
  if (dash == std::string_view::npos || dash > slash) return;
  const auto first = number(trimmed(s.substr(0, dash))), last = number(trimmed(s.substr(dash + 1, slash - dash - 1)));
  if (first && last && *last >= *first && *last < UINT64_MAX) head.range = ByteRange{*first, *last + 1};
}

}  // namespace

void read_header_line(std::string_view line, HttpHead& head) {
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return;
  const std::string name = lower(line.substr(0, colon));
  const std::string_view value = trimmed(line.substr(colon + 1));
  if (name == "etag") head.etag = value;
  if (name == "last-modified") head.last_modified = value;
  if (name == "content-type") head.content_type = lower(value);
  if (name == "content-length") head.length = number(value);
  if (name == "content-range") read_content_range(value, head);
  if (name == "link") head.link = value;
  if (name == "x-linked-etag") head.linked_etag = value;
  if (name == "x-linked-size") head.linked_size = value;
}

HttpError status_error(int status, const std::string& url, bool with_token) {
  const std::string where = shown_url(url);
  HttpError e;
  e.status = status;
  e.transient = status == 408 || status == 425 || status == 429 || status >= 500;
  if (status == 401 || status == 403)
    e.error = with_token ? bad_input(
                               "[pull] {}: answered {}: the token may not read this; for a gated model accept its "
                               "licence on its page, or the name is wrong",
                               where, status)
                         : bad_input(
                               "[pull] {}: answered {}: private, gated or a wrong name; accept the model's licence on "
                               "its page and set HF_TOKEN (ModelScope: MODELSCOPE_API_TOKEN)",
                               where, status);
  else if (status == 404 || status == 410)
    e.error = bad_input("[pull] {}: answered {}: no such model, revision or file", where, status);
  else if (status == 407)
    e.error = fail(ErrorCode::failed, "[pull] {}: the proxy wants a name and password (answered 407)", where);
  else if (status == 416)
    e.error = bad_input("[pull] {}: answered 416: the file is shorter than it was said to be", where);
  else if (status == 429)
    e.error = fail(ErrorCode::failed, "[pull] {}: answered 429: too many requests", where);
  else if (status >= 500)
    e.error = fail(ErrorCode::failed, "[pull] {}: answered {}: the server has a problem", where, status);
  else
    e.error = fail(e.transient ? ErrorCode::failed : ErrorCode::bad_input,
                   "[pull] {}: expected the file, got status {}", where, status);
  return e;
}

}  // namespace danqing::fetch
