// Every request's way in: identity, origin, route, thread.
#include <algorithm>

#include "server/api/app.h"
#include "server/auth/crypto.h"
#include "server/ops/ecs_log.h"

namespace danqing::server {
namespace {

const Headers kSecurity{
    {"X-Content-Type-Options", "nosniff"},
    {"X-Frame-Options", "DENY"},
    {"Referrer-Policy", "no-referrer"},
    {"Cross-Origin-Opener-Policy", "same-origin"},
    {"Content-Security-Policy",
     "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
     "manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
};

bool lower_hex(std::string_view t) {
  return std::all_of(t.begin(), t.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

/// W3C trace context (version-trace-parent-flags): the client's trace goes on through the job. What the standard calls
/// invalid (zeros, capitals, version ff, a longer version 00) begins a trace of our own.
std::string trace_of(const Request& r) {
  const std::string t = r.header("traceparent");
  const std::string_view v(t);
  constexpr size_t kSize = 55;
  const bool shape = v.size() >= kSize && v[2] == '-' && v[35] == '-' && v[52] == '-' && lower_hex(v.substr(0, 2)) &&
                     lower_hex(v.substr(3, 32)) && lower_hex(v.substr(36, 16)) && lower_hex(v.substr(53, 2));
  const bool good =
      shape && v.substr(0, 2) != "ff" && (v.size() == kSize || (v.substr(0, 2) != "00" && v[kSize] == '-')) &&
      v.substr(3, 32).find_first_not_of('0') != v.npos && v.substr(36, 16).find_first_not_of('0') != v.npos;
  return good ? t.substr(3, 32) : random_hex(16);
}

std::string host_of(const std::string& host) {  // without the port
  if (!host.empty() && host[0] == '[') return host.substr(0, host.find(']') + 1);
  return host.substr(0, host.find(':'));
}

bool is_address(const std::string& host) {
  return host == "localhost" || (!host.empty() && host[0] == '[') ||
         (!host.empty() &&
          std::all_of(host.begin(), host.end(), [](char c) { return (c >= '0' && c <= '9') || c == '.'; }));
}

/// Without keys a name that somebody pointed at us (DNS rebinding) must not open the server to his page.
bool good_host(const App& app, const Request& r) {
  if (!app.keys.open()) return true;
  const std::string host = host_of(r.header("host"));
  const auto& list = app.config.allowed_hosts;
  return host.empty() || is_address(host) || std::find(list.begin(), list.end(), host) != list.end();
}

/// Another site's page may call only if it is on the list; our own always.
bool good_origin(const App& app, const Request& r, bool& listed) {
  const std::string origin = r.header("origin");
  listed = false;
  if (origin.empty()) return true;
  for (const std::string& c : app.config.cors)
    if (c == "*" || c == origin) listed = true;
  const size_t at = origin.find("://");
  return listed || (at != std::string::npos && origin.substr(at + 3) == r.header("host"));
}

}  // namespace

void dispatch(App& app, const ExchangePtr& e) {
  Request& r = e->request;
  r.trace_id = trace_of(r);
  e->common_headers = kSecurity;
  e->common_headers.emplace_back("X-Request-Id", r.trace_id);
  const auto fail_with = [&](const ApiError& error) {
    e->respond(r.path.rfind("/sdapi/", 0) == 0 ? sd_error_response(error) : error_response(error));
  };
  const auto start = std::chrono::steady_clock::now();
  std::string allowed;
  const Route* route = app.router.find(r, allowed);
  e->on_answered = [&app, start, method = r.method, path = r.path, trace = r.trace_id, remote = r.remote,
                    pattern = route ? route->pattern : std::string("none"), quiet = route && route->quick](int status) {
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    app.metrics.request(pattern, status, seconds);
    log_event(quiet ? log::Level::debug : log::Level::info, "request",
              {{"trace.id", trace},
               {"http.request.method", method},
               {"url.path", path},
               {"http.response.status_code", status},
               {"event.duration", static_cast<int64_t>(seconds * 1e9)},
               {"client.address", remote}});
  };
  bool listed = false;
  if (!good_host(app, r))
    return fail_with({403, "wrong_host", "[http] this server does not answer to that host name (--allowed-host)"});
  if (!good_origin(app, r, listed))
    return fail_with({403, "wrong_origin", "[http] pages of that origin may not call this server (--cors)"});
  if (listed) {
    e->common_headers.emplace_back("Access-Control-Allow-Origin", r.header("origin"));
    e->common_headers.emplace_back("Vary", "Origin");
  }
  if (r.method == "OPTIONS") {
    if (!listed)
      return fail_with({403, "wrong_origin", "[http] pages of that origin may not call this server (--cors)"});
    e->respond({204,
                "",
                "",
                {{"Access-Control-Allow-Methods", "GET, POST, DELETE"},
                 {"Access-Control-Allow-Headers", "Authorization, Content-Type, Idempotency-Key, X-Api-Key"},
                 {"Access-Control-Max-Age", "600"}}});
    return;
  }
  if (!route) {
    if (allowed.empty()) return fail_with({404, "not_found", "[http] there is nothing at this address"});
    Response answer = error_response({405, "method_not_allowed", "[http] expected " + allowed});
    answer.headers.emplace_back("Allow", allowed);
    return e->respond(std::move(answer));
  }
  if (route->quick && route->access == Access::all) return route->handler(e);
  const auto go = [&app, e, route] {
    Request& request = e->request;
    const auto caller = app.keys.caller(request);
    const auto answer = [&](const ApiError& error) {
      e->respond(request.path.rfind("/sdapi/", 0) == 0 ? sd_error_response(error) : error_response(error));
    };
    if (!caller && route->access != Access::all)
      return answer({401, "invalid_api_key", "[keys] expected an API key (Authorization: Bearer KEY)"});
    request.caller = caller.value_or(Caller{"", false});
    if (route->access == Access::admin && !request.caller.admin)
      return answer({403, "forbidden", "[keys] this needs an admin's key"});
    try {
      route->handler(e);
    } catch (const std::exception& x) {
      log_event(log::Level::error, x.what(), {{"trace.id", request.trace_id}, {"event.action", "handler-failed"}});
      answer({500, "failed", "[internal] the request failed; the log says why"});
    }
  };
  if (route->quick) return go();
  app.pool->post(go);
}

}  // namespace danqing::server
