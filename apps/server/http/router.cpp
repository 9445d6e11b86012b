#include "server/http/router.h"

namespace danqing::server {
namespace {

bool match(std::string_view pattern, std::string_view path, std::map<std::string, std::string>& params) {
  while (!pattern.empty() || !path.empty()) {
    if (pattern.empty() || path.empty() || pattern[0] != '/' || path[0] != '/') return false;
    const size_t a = std::min(pattern.find('/', 1), pattern.size()), b = std::min(path.find('/', 1), path.size());
    const std::string_view want = pattern.substr(1, a - 1), have = path.substr(1, b - 1);
    const size_t close = want.size() > 2 && want.front() == '{' ? want.find('}') : std::string_view::npos;
    if (close != std::string_view::npos) {
      const std::string_view tail = want.substr(close + 1);  // "{id}:reload"
      if (have.size() <= tail.size() || have.substr(have.size() - tail.size()) != tail) return false;
      params[std::string(want.substr(1, close - 1))] = std::string(have.substr(0, have.size() - tail.size()));
    } else if (want != have) {
      return false;
    }
    pattern.remove_prefix(a);
    path.remove_prefix(b);
  }
  return true;
}

}  // namespace

const Route* Router::find(Request& r, std::string& allowed) const {
  const std::string method = r.method == "HEAD" ? "GET" : r.method;
  for (const Route& route : routes_) {
    std::map<std::string, std::string> params;
    if (!match(route.pattern, r.path, params)) continue;
    if (route.method == method) {
      r.params = std::move(params);
      return &route;
    }
    allowed += (allowed.empty() ? "" : ", ") + route.method + (route.method == "GET" ? ", HEAD" : "");
  }
  return nullptr;
}

}  // namespace danqing::server
