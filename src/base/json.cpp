#include "base/json.h"

#include <cmath>
#include <set>

#include "base/file.h"
#include "base/text.h"
#include "base/try.h"

namespace danqing {
namespace {

constexpr int kMaxDepth = 128;

// nlohmann's DOM is destroyed recursively, so depth is checked on the text before parsing.
bool too_deep(std::string_view s) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < s.size(); ++i) {
    const char c = s[i];
    if (in_string) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxDepth) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

Error wrong(const std::string& where, std::string_view key, const char* expected, const Json* got) {
  if (!got) return bad_input("[json] {}: field '{}' is missing (expected {})", where, key, expected);
  return bad_input("[json] {}: field '{}' expected {}, got {}", where, key, expected, one_line(dump_json(*got), 60));
}

/// The library's message without its own name and number in front.
std::string reason(const Json::exception& e) {
  const std::string_view text = e.what();
  const size_t end = text.find("] ");
  return one_line(end == std::string_view::npos ? text : text.substr(end + 2), 200);
}

}  // namespace

Result<Json> parse_json(std::string_view text, const std::string& where) {
  if (too_deep(text)) return bad_input("[json] {}: nested deeper than {} levels", where, kMaxDepth);
  try {
    return Json::parse(text);
  } catch (const Json::exception& e) {
    return bad_input("[json] {}: not valid JSON ({})", where, reason(e));
  }
}

Result<Json> read_json(const std::filesystem::path& path) {
  DQ_TRY(std::string text, read_text(path));
  return parse_json(text, path.string());
}

Result<Json> read_json_unique(const std::filesystem::path& path) {
  DQ_TRY(std::string text, read_text(path));
  const std::string where = path.string();
  if (too_deep(text)) return bad_input("[json] {}: nested deeper than {} levels", where, kMaxDepth);
  std::vector<std::set<std::string>> open;
  std::optional<std::string> twice;
  const auto watch = [&](int, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::object_start) open.emplace_back();
    if (event == Json::parse_event_t::object_end) open.pop_back();
    if (event == Json::parse_event_t::key && !open.back().insert(value.get<std::string>()).second && !twice)
      twice = value.get<std::string>();
    return true;
  };
  try {
    Json json = Json::parse(text, watch);
    if (!twice) return json;
    return bad_input("[json] {}: expected key '{}' once, got it twice", where, one_line(*twice));
  } catch (const Json::exception& e) {
    return bad_input("[json] {}: not valid JSON ({})", where, reason(e));
  }
}

std::string dump_json(const Json& j, int indent) { return j.dump(indent, ' ', false, Json::error_handler_t::replace); }

Result<JsonObject> JsonObject::of(const Json& j, std::string where) {
  if (!j.is_object()) return bad_input("[json] {}: expected an object, got {}", where, j.type_name());
  JsonObject o;
  o.j_ = &j;
  o.where_ = std::move(where);
  return o;
}

const Json* JsonObject::get(std::string_view key) const {
  const auto it = j_->find(std::string(key));
  return it == j_->end() || it->is_null() ? nullptr : &*it;
}

bool JsonObject::has(std::string_view key) const { return get(key) != nullptr; }

Result<int64_t> JsonObject::integer(std::string_view key, std::optional<int64_t> fallback) const {
  const Json* v = get(key);
  if (!v && fallback) return *fallback;
  if (v && v->is_number_unsigned() && v->get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX))
    return static_cast<int64_t>(v->get<uint64_t>());
  if (v && v->is_number_integer() && !v->is_number_unsigned()) return v->get<int64_t>();
  return wrong(where_, key, "an integer", v);
}

Result<int64_t> JsonObject::integer_in(std::string_view key, int64_t min, int64_t max,
                                       std::optional<int64_t> fallback) const {
  DQ_TRY(int64_t v, integer(key, fallback));
  if (v < min || v > max) return bad_input("[json] {}: field '{}' expected {} to {}, got {}", where_, key, min, max, v);
  return v;
}

Result<double> JsonObject::number(std::string_view key, std::optional<double> fallback) const {
  const Json* v = get(key);
  if (!v && fallback) return *fallback;
  if (v && v->is_number() && std::isfinite(v->get<double>())) return v->get<double>();
  return wrong(where_, key, "a finite number", v);
}

Result<bool> JsonObject::boolean(std::string_view key, std::optional<bool> fallback) const {
  const Json* v = get(key);
  if (!v && fallback) return *fallback;
  if (v && v->is_boolean()) return v->get<bool>();
  return wrong(where_, key, "true or false", v);
}

Result<std::string> JsonObject::string(std::string_view key, std::optional<std::string> fallback) const {
  const Json* v = get(key);
  if (!v && fallback) return *fallback;
  if (v && v->is_string()) return v->get<std::string>();
  return wrong(where_, key, "a string", v);
}

Result<std::vector<int64_t>> JsonObject::integers(std::string_view key,
                                                  std::optional<std::vector<int64_t>> fallback) const {
  const Json* v = get(key);
  if (!v && fallback) return *fallback;
  if (!v || !v->is_array()) return wrong(where_, key, "a list of integers", v);
  std::vector<int64_t> out;
  for (const Json& x : *v) {
    if (!x.is_number_integer() || (x.is_number_unsigned() && x.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)))
      return wrong(where_, key, "a list of integers", v);
    out.push_back(x.get<int64_t>());
  }
  return out;
}

Result<JsonObject> JsonObject::object(std::string_view key) const {
  const Json* v = get(key);
  if (!v || !v->is_object()) return wrong(where_, key, "an object", v);
  return of(*v, where_ + ":" + std::string(key));
}

}  // namespace danqing
