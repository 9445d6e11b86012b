#include "fetch/remote.h"

#include <algorithm>
#include <cstdlib>
#include <set>

#include "base/json.h"
#include "base/text.h"
#include "base/try.h"
#include "fetch/digest.h"

namespace danqing::fetch {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

bool word(std::string_view s) {
  return !s.empty() && s.size() <= 96 && s[0] != '.' && s[0] != '-' && std::all_of(s.begin(), s.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
  });
}

/// The last part of the address's path, decoded.
std::string file_name(const std::string& url) {
  std::string path = shown_url(url);
  return url_decode(std::string_view(path).substr(path.rfind('/') + 1));
}

Result<void> ask_size(Http& http, RemoteFile& file) {
  Patience patience(http);
  for (;;) {
    const HttpAnswer a = http.get(
        {.url = file.url, .range = ByteRange{0, 1}, .if_range = {}}, [](const HttpHead&) { return false; },
        [](std::span<const std::byte>) -> Result<void> { return {}; });
    if (!a.error) {
      file.size = a.head.status == 206 ? a.head.total : a.head.length;
      file.etag = a.head.etag;
      // A hub's own addresses say what lies behind the redirect.
      std::string linked = a.head.linked_etag;
      std::erase(linked, '"');
      if (file.sha256.empty()) file.sha256 = checked_hex(linked, 64);
      return {};
    }
    if (a.error->status == 416) {  // an empty file has no first byte
      file.size = a.error->status == 416 ? a.head.total.value_or(0) : 0;
      return {};
    }
    DQ_CHECK(patience.after(*a.error));
  }
}

}  // namespace

Result<void> check_remote_path(std::string_view path) {
  const auto refuse = [&](const char* why) {
    return bad_input("[pull] the file name '{}' is not taken: {}", one_line(path, 100), why);
  };
  if (path.empty() || path.size() > 1024) return refuse("empty or longer than 1024 bytes");
  if (valid_utf8_prefix(path) != path.size()) return refuse("no UTF-8");
  for (const char c : path)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f || c == '\\' || c == ':')
      return refuse("a backslash, colon or control character");
  size_t begin = 0;
  while (begin <= path.size()) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view part = path.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..") return refuse("it could lead out of the model's folder");
    if (part.size() > 255) return refuse("a part of more than 255 bytes");
    if (part.rfind(".danqing", 0) == 0) return refuse("a name of our own");
    for (const std::string_view tail : {".part", ".part.journal"})
      if (part.size() >= tail.size() && part.substr(part.size() - tail.size()) == tail)
        return refuse("a name of our own");
    begin = end + 1;
  }
  return {};
}

Result<Hub> parse_hub(std::string_view text) {
  if (text == "huggingface" || text == "hf") return Hub::huggingface;
  if (text == "modelscope" || text == "ms") return Hub::modelscope;
  return usage_error("[--hub] expected huggingface or modelscope, got '{}'", one_line(text, 40));
}

Result<HubAddress> hub_from_environment(Hub hub) {
  HubAddress a{.hub = hub};
  const bool face = hub == Hub::huggingface;
  a.endpoint = environment(face ? "HF_ENDPOINT" : "MODELSCOPE_ENDPOINT");
  if (!face && a.endpoint.empty()) a.endpoint = environment("MODELSCOPE_DOMAIN");
  if (a.endpoint.empty()) a.endpoint = face ? "https://huggingface.co" : "https://modelscope.cn";
  if (a.endpoint.find("://") == std::string::npos) a.endpoint = "https://" + a.endpoint;
  while (a.endpoint.back() == '/') a.endpoint.pop_back();
  if (origin_of(a.endpoint).empty())
    return usage_error("[pull] {}: expected an http or https address, got '{}'",
                       face ? "HF_ENDPOINT" : "MODELSCOPE_ENDPOINT", one_line(shown_url(a.endpoint), 80));
  a.token = environment(face ? "HF_TOKEN" : "MODELSCOPE_API_TOKEN");
  if (!face && a.token.empty()) a.token = environment("MODELSCOPE_TOKEN");
  const size_t from = a.token.find_first_not_of(" \t\r\n"), to = a.token.find_last_not_of(" \t\r\n");
  a.token = from == std::string::npos ? "" : a.token.substr(from, to - from + 1);
  for (const char c : a.token)
    if (static_cast<unsigned char>(c) <= 0x20 || static_cast<unsigned char>(c) >= 0x7f || c == ';')
      return usage_error("[pull] the token in the environment holds a character that no token has");
  return a;
}

std::vector<Credential> credentials_of(const HubAddress& a) {
  if (a.token.empty()) return {};
  std::vector<std::string> headers = {"Authorization: Bearer " + a.token};
  if (a.hub == Hub::modelscope) headers.push_back("Cookie: m_session_id=" + a.token);
  return {{origin_of(a.endpoint), std::move(headers)}};
}

Result<RepositoryId> parse_repository(std::string_view text) {
  RepositoryId id;
  const size_t at = text.find('@');
  id.name = text.substr(0, at);
  if (at != std::string_view::npos) {
    id.revision = text.substr(at + 1);
    if (id.revision.empty() || check_remote_path(id.revision).ok() == false)
      return usage_error("[pull] expected a branch, tag or commit behind '@', got '{}'", one_line(id.revision, 60));
  }
  const size_t slash = id.name.find('/');
  if (slash == std::string::npos || !word(std::string_view(id.name).substr(0, slash)) ||
      !word(std::string_view(id.name).substr(slash + 1)))
    return usage_error("[pull] expected owner/name, owner/name@revision or an address, got '{}'", one_line(text, 80));
  return id;
}

Result<Listing> list_urls(Http& http, const std::vector<std::string>& urls) {
  Listing out{.source = "url"};
  std::set<std::string> names;
  for (const std::string& given : urls) {
    RemoteFile file{.url = given};
    if (const size_t hash = given.rfind("#sha256="); hash != std::string::npos) {
      file.url = given.substr(0, hash);
      file.sha256 = checked_hex(std::string_view(given).substr(hash + 8), 64);
      if (file.sha256.empty())
        return usage_error("[pull] {}: expected 64 hexadecimal digits behind #sha256=", shown_url(given));
    }
    if (origin_of(file.url).empty())
      return usage_error("[pull] expected an http or https address, got '{}'", one_line(shown_url(file.url), 80));
    file.path = file_name(file.url);
    if (file.path.empty())
      return usage_error("[pull] {}: expected an address that ends with a file's name", shown_url(file.url));
    DQ_CHECK(check_remote_path(file.path));
    if (!names.insert(file.path).second)
      return usage_error("[pull] expected files of different names, got '{}' twice", one_line(file.path));
    DQ_CHECK(ask_size(http, file));
    out.files.push_back(std::move(file));
  }
  return out;
}

}  // namespace danqing::fetch
