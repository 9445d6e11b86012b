#include "server/http/multipart.h"

#include <algorithm>
#include <cctype>

namespace danqing::server {
namespace {

constexpr size_t kMostParts = 64, kMostHeaders = 8192, kMostBoundary = 70;

std::string lower(std::string_view text) {
  std::string s(text);
  std::transform(s.begin(), s.end(), s.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return s;
}

/// The value of `key` in "form-data; name=\"a\"; filename=b".
std::optional<std::string> parameter(std::string_view header, const std::string& key) {
  const std::string all = lower(header);
  for (size_t at = all.find(key + "="); at != std::string::npos; at = all.find(key + "=", at + 1)) {
    if (at > 0 && all[at - 1] != ' ' && all[at - 1] != ';' && all[at - 1] != '\t') continue;  // "filename" holds "name"
    std::string_view rest = header.substr(at + key.size() + 1);
    if (!rest.starts_with('"')) return std::string(rest.substr(0, rest.find_first_of("; \t")));
    std::string value;
    for (size_t i = 1; i < rest.size(); ++i) {
      if (rest[i] == '"') return value;
      if (rest[i] == '\\' && i + 1 < rest.size()) ++i;
      value += rest[i];
    }
    return {};
  }
  return {};
}

bool read_headers(std::string_view headers, FormPart& part) {
  bool named = false;
  while (!headers.empty()) {
    const size_t end = std::min(headers.find("\r\n"), headers.size());
    const std::string_view line = headers.substr(0, end);
    headers.remove_prefix(std::min(headers.size(), end + 2));
    if (!lower(line.substr(0, 20)).starts_with("content-disposition:")) continue;
    const auto name = parameter(line.substr(20), "name");
    if (!name) return false;
    part.name = *name;
    part.is_file = parameter(line.substr(20), "filename").has_value();
    named = true;
  }
  return named;
}

}  // namespace

std::string form_boundary(const std::string& content_type) {
  if (!lower(content_type).starts_with("multipart/form-data")) return "";
  const std::string boundary = parameter(content_type, "boundary").value_or("");
  return boundary.size() <= kMostBoundary ? boundary : "";
}

std::optional<std::vector<FormPart>> parse_form(std::string_view body, const std::string& boundary) {
  if (boundary.empty()) return {};
  const std::string mark = "--" + boundary;
  std::vector<FormPart> parts;
  if (!body.starts_with(mark)) {  // a preamble is allowed and ignored
    const size_t first = body.find("\r\n" + mark);
    if (first == std::string_view::npos) return {};
    body.remove_prefix(first + 2);
  }
  body.remove_prefix(mark.size());
  while (!body.starts_with("--")) {
    if (!body.starts_with("\r\n") || parts.size() == kMostParts) return {};
    body.remove_prefix(2);
    FormPart part;
    const size_t headers = body.substr(0, kMostHeaders).find("\r\n\r\n");
    if (headers == std::string_view::npos || !read_headers(body.substr(0, headers), part)) return {};
    body.remove_prefix(headers + 4);
    const size_t end = body.find("\r\n" + mark);
    if (end == std::string_view::npos) return {};
    part.data = body.substr(0, end);
    parts.push_back(std::move(part));
    body.remove_prefix(end + 2 + mark.size());
  }
  return parts;
}

}  // namespace danqing::server
