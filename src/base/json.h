// JSON that comes from outside: parsed without exceptions, every field read with its type checked.
#pragma once
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "danqing/result.h"

namespace danqing {

using Json = nlohmann::json;

/// Parses text; `where` names the source in errors. Depth is limited so that hostile nesting cannot exhaust the stack.
Result<Json> parse_json(std::string_view text, const std::string& where);
Result<Json> read_json(const std::filesystem::path& path);
/// The same, but a key that is there twice in one object is an error (JSON itself lets the last one win).
Result<Json> read_json_unique(const std::filesystem::path& path);

/// Serialises whatever the strings hold; invalid UTF-8 becomes U+FFFD instead of an exception.
std::string dump_json(const Json& j, int indent = -1);

/// Checked access to the members of one object; `where` is the file name for messages.
/// A missing member or a null gives the fallback, or an error if there is none.
class JsonObject {
 public:
  static Result<JsonObject> of(const Json& j, std::string where);
  bool has(std::string_view key) const;         ///< present and not null
  const Json* get(std::string_view key) const;  ///< nullptr if absent or null
  Result<int64_t> integer(std::string_view key, std::optional<int64_t> fallback = {}) const;
  /// Integer within [min, max]
  Result<int64_t> integer_in(std::string_view key, int64_t min, int64_t max,
                             std::optional<int64_t> fallback = {}) const;
  Result<double> number(std::string_view key, std::optional<double> fallback = {}) const;  ///< finite
  Result<bool> boolean(std::string_view key, std::optional<bool> fallback = {}) const;
  Result<std::string> string(std::string_view key, std::optional<std::string> fallback = {}) const;
  Result<std::vector<int64_t>> integers(std::string_view key, std::optional<std::vector<int64_t>> fallback = {}) const;
  Result<JsonObject> object(std::string_view key) const;
  const Json& json() const { return *j_; }
  const std::string& where() const { return where_; }

 private:
  const Json* j_ = nullptr;  // not owned: lives as long as the document
  std::string where_;
};

}  // namespace danqing
