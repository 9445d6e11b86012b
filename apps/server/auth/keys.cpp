#include "server/auth/keys.h"

#include <algorithm>
#include <sstream>

#include "base/file.h"
#include "base/text.h"
#include "base/try.h"
#include "server/auth/crypto.h"

namespace danqing::server {
namespace {

bool good_name(const std::string& name) {
  return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '-' || c == '_' || c == '.' || c == '@';
  });
}

std::string given_key(const Request& r) {
  const std::string direct = r.header("x-api-key");
  if (!direct.empty()) return direct;
  const std::string a = r.header("authorization");
  const size_t space = a.find(' ');
  if (space == std::string::npos) return "";
  std::string scheme = a.substr(0, space), value = a.substr(a.find_last_of(' ') + 1);
  std::transform(scheme.begin(), scheme.end(), scheme.begin(), [](unsigned char c) { return std::tolower(c); });
  if (scheme == "bearer") return value;
  std::string pair;
  if (scheme != "basic" || !base64_decode(value, pair)) return "";
  const size_t colon = pair.find(':');
  return colon == std::string::npos ? "" : pair.substr(colon + 1);
}

}  // namespace

Result<void> ApiKeys::load(const std::filesystem::path& file) {
  DQ_TRY(const std::string content, read_text(file, 1 << 20));
  std::vector<Entry> entries;
  std::istringstream lines(content);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty() || line[0] == '#') continue;
    const size_t a = line.find(':'), b = a == std::string::npos ? a : line.find(':', a + 1);
    const std::string name = line.substr(0, a);
    const std::string scope = b == std::string::npos ? "" : line.substr(a + 1, b - a - 1);
    const std::string hash = b == std::string::npos ? "" : line.substr(b + 1);
    if (!good_name(name) || (scope != "admin" && scope != "user") || hash.size() != 64)
      return bad_input("[keys] {}:{}: expected name:admin:HASH or name:user:HASH, as danqing serve --new-key prints it",
                       file.string(), number);
    entries.push_back({{name, scope == "admin"}, hash});
  }
  if (entries.empty())
    return bad_input("[keys] {}: expected at least one key; make one by danqing serve --new-key NAME", file.string());
  const std::lock_guard lock(mutex_);
  entries_ = std::move(entries);
  open_ = false;
  return {};
}

bool ApiKeys::open() const {
  const std::lock_guard lock(mutex_);
  return open_;
}

std::optional<Caller> ApiKeys::caller(const Request& r) const {
  const std::lock_guard lock(mutex_);
  if (open_) return Caller{};
  const std::string key = given_key(r);
  if (key.empty()) return {};
  const std::string hash = sha256_hex(key);
  std::optional<Caller> found;
  for (const Entry& e : entries_)
    if (equal_secrets(e.hash, hash)) found = e.caller;
  return found;
}

Result<ApiKeys::NewKey> ApiKeys::make(const std::string& name, bool admin) {
  if (!good_name(name))
    return usage_error("[keys] expected a name of letters, digits and -_.@, got '{}'", one_line(name, 60));
  NewKey k;
  k.key = "dq-" + random_hex(24);
  k.line = fmt::format("{}:{}:{}", name, admin ? "admin" : "user", sha256_hex(k.key));
  return k;
}

}  // namespace danqing::server
