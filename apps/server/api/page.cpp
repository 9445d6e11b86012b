// The page and openapi.json, from inside the binary.
#include "server/api/app.h"
#include "server/auth/crypto.h"
#include "server/web/embedded.h"

namespace danqing::server {
namespace {

std::string type_of(std::string_view name) {
  const auto ends = [&](std::string_view e) {
    return name.size() >= e.size() && name.substr(name.size() - e.size()) == e;
  };
  if (ends(".html")) return "text/html; charset=utf-8";
  if (ends(".js")) return "text/javascript; charset=utf-8";
  if (ends(".css")) return "text/css; charset=utf-8";
  if (ends(".json")) return "application/json";
  if (ends(".svg")) return "image/svg+xml";
  if (ends(".webmanifest")) return "application/manifest+json";
  return "application/octet-stream";
}

}  // namespace

void add_page(App& app) {
  for (const auto& [name, bytes] : embedded_files()) {
    const std::string tag = "\"" + sha256_hex(bytes).substr(0, 16) + "\"";
    const auto serve = [body = std::string(bytes), type = type_of(name), tag](const ExchangePtr& e) {
      const Headers headers{{"ETag", tag}, {"Cache-Control", "no-cache"}};
      if (e->request.header("if-none-match") == tag) return e->respond({304, type, "", headers});
      e->respond({200, type, body, headers});
    };
    app.router.add({"GET", "/" + std::string(name), Access::all, serve, true});
    if (name == "index.html") app.router.add({"GET", "/", Access::all, serve, true});
  }
}

}  // namespace danqing::server
