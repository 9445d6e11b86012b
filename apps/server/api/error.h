// What a client is told when its request cannot be done.
#pragma once
#include <string>

#include "base/json.h"
#include "danqing/result.h"
#include "server/http/http.h"

namespace danqing::server {

struct ApiError {
  int status = 400;
  std::string code;     ///< for programs: "invalid_value", "queue_full", ...
  std::string message;  ///< for people, one line
  std::string param = {};
  int retry_after = 0;  ///< seconds; 0 = not said
};

/// Either a value or an ApiError; used like Result.
template <class T>
class [[nodiscard]] Api {
 public:
  Api(T value) : v_(std::in_place_index<0>, std::move(value)) {}
  Api(ApiError error) : v_(std::in_place_index<1>, std::move(error)) {}
  explicit operator bool() const { return v_.index() == 0; }
  T& operator*() { return std::get<0>(v_); }
  const T& operator*() const { return std::get<0>(v_); }
  T* operator->() { return &std::get<0>(v_); }
  T&& value() && { return std::get<0>(std::move(v_)); }
  ApiError&& error() && { return std::get<1>(std::move(v_)); }
  const ApiError& error() const& { return std::get<1>(v_); }

 private:
  std::variant<T, ApiError> v_;
};

/// usage -> 422, does_not_fit -> 413, the rest -> 500 and 503 (device lost).
ApiError to_api(const Error& error);
/// {"error": {"message", "type", "param", "code"}}, as OpenAI's clients read it.
Response error_response(const ApiError& error);
/// {"detail", "error", "errors"}, as A1111's clients read it.
Response sd_error_response(const ApiError& error);
Response json_response(const Json& body, int status = 200);

}  // namespace danqing::server
