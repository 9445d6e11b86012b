// Reads the members of a request's JSON: each with its type and range, the first wrong one is the answer, and what
// nobody asked for is known at the end.
#pragma once
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "server/api/error.h"

namespace danqing::server {

class Fields {
 public:
  /// The body must be a JSON object; an empty body counts as one.
  static Api<Fields> parse(const Request& request);
  /// The same from multipart/form-data: files in base64, several of one name ("image[]") as a list under it without the
  /// brackets; words of `plain` stay text, others that are JSON numbers, true or false become that.
  static Api<Fields> parse_form(const Request& request, std::initializer_list<const char*> plain);
  explicit Fields(Json object, std::string prefix = "") : json_(std::move(object)), prefix_(std::move(prefix)) {}

  std::optional<std::string> text(const char* key);
  std::optional<std::string> choice(const char* key, std::initializer_list<const char*> choices);
  std::optional<int64_t> integer(const char* key, int64_t min, int64_t max);
  std::optional<uint64_t> seed(const char* key);
  std::optional<double> number(const char* key, double min, double max);
  std::optional<bool> boolean(const char* key);
  std::optional<std::vector<std::string>> texts(const char* key);
  std::optional<std::vector<uint64_t>> seeds(const char* key);
  std::optional<Json> object(const char* key);
  const Json* any(const char* key);  ///< null: absent or null
  void ignore(std::initializer_list<const char*> keys) {
    for (const char* k : keys) used_.insert(k);
  }
  void wrong(const char* key, const std::string& expected);
  void refuse(ApiError error) {
    if (!error_) error_ = std::move(error);
  }
  const std::optional<ApiError>& error() const { return error_; }
  /// "unknown field 'x' was ignored", one for each.
  std::vector<std::string> unknown() const;
  const Json& json() const { return json_; }

 private:
  Json json_;
  std::string prefix_;
  std::set<std::string> used_;
  std::optional<ApiError> error_;
};

}  // namespace danqing::server
