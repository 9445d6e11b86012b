#include "server/api/error.h"

namespace danqing::server {

ApiError to_api(const Error& e) {
  switch (e.code) {
    case ErrorCode::usage: return {422, "invalid_value", e.message};
    case ErrorCode::does_not_fit: return {413, "does_not_fit", e.message};
    case ErrorCode::device_lost: return {503, "device_lost", e.message};
    case ErrorCode::cancelled: return {409, "cancelled", e.message};
    case ErrorCode::failed:
    case ErrorCode::bad_input: break;
  }
  return {500, "failed", e.message};
}

namespace {
Response with_headers(const ApiError& e, const Json& body) {
  Response r{e.status, "application/json", dump_json(body)};
  if (e.retry_after > 0) r.headers.emplace_back("Retry-After", std::to_string(e.retry_after));
  if (e.status == 401) r.headers.emplace_back("WWW-Authenticate", "Bearer realm=\"danqing\"");
  return r;
}
}  // namespace

Response error_response(const ApiError& e) {
  const char* type = e.status == 401   ? "authentication_error"
                     : e.status == 403 ? "permission_error"
                     : e.status == 429 ? "rate_limit_error"
                     : e.status >= 500 ? "server_error"
                                       : "invalid_request_error";
  return with_headers(e, {{"error",
                           {{"message", e.message},
                            {"type", type},
                            {"param", e.param.empty() ? Json() : Json(e.param)},
                            {"code", e.code.empty() ? Json() : Json(e.code)}}}});
}

Response sd_error_response(const ApiError& e) {
  Response r = with_headers(e, {{"error", e.code}, {"detail", e.message}, {"body", ""}, {"errors", e.message}});
  for (auto& [key, value] : r.headers)
    if (key == "WWW-Authenticate") value = "Basic realm=\"danqing\"";  // what these clients know
  return r;
}

Response json_response(const Json& body, int status) { return {status, "application/json", dump_json(body)}; }

}  // namespace danqing::server
