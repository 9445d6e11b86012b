#include "server/api/fields.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "base/try.h"
#include "server/http/multipart.h"

namespace danqing::server {

Api<Fields> Fields::parse(const Request& r) {
  const std::string type = r.header("content-type");
  // A page of another origin can send text/plain without asking first; JSON it cannot.
  if (!type.empty() && type.find("json") == std::string::npos)
    return ApiError{415, "unsupported_media_type",
                    "[http] expected Content-Type: application/json, got " + one_line(type, 60)};
  if (r.body.empty()) return Fields(Json::object());
  if (type.empty()) return ApiError{415, "unsupported_media_type", "[http] expected Content-Type: application/json"};
  if (valid_utf8_prefix(r.body) != r.body.size()) return ApiError{400, "invalid_json", "[json] the body is not UTF-8"};
  auto json = parse_json(r.body, "body");
  if (!json) return ApiError{400, "invalid_json", json.error().message};
  if (!json->is_object()) return ApiError{400, "invalid_json", "[json] expected an object"};
  return Fields(std::move(*json));
}

Api<Fields> Fields::parse_form(const Request& r, std::initializer_list<const char*> plain) {
  const auto parts = server::parse_form(r.body, form_boundary(r.header("content-type")));
  if (!parts) return ApiError{400, "invalid_form", "[http] the body is no multipart/form-data"};
  Json json = Json::object();
  for (const FormPart& p : *parts) {
    if (!p.is_file && valid_utf8_prefix(p.data) != p.data.size())
      return ApiError{400, "invalid_form", "[http] the body is not UTF-8"};
    std::string name = p.name;
    if (valid_utf8_prefix(name) != name.size()) return ApiError{400, "invalid_form", "[http] the body is not UTF-8"};
    const bool list = name.ends_with("[]");
    if (list) name.resize(name.size() - 2);
    Json value = p.is_file ? Json(base64(p.data)) : Json(std::string(p.data));
    const bool text = std::any_of(plain.begin(), plain.end(), [&](const char* k) { return name == k; });
    if (!p.is_file && !text)
      if (const Json word = Json::parse(p.data, nullptr, false); word.is_number() || word.is_boolean()) value = word;
    if (list || json.contains(name)) {
      if (!json.contains(name)) json[name] = Json::array();
      if (!json[name].is_array()) json[name] = Json::array({json[name]});
      json[name].push_back(std::move(value));
    } else {
      json[name] = std::move(value);
    }
  }
  return Fields(std::move(json));
}

const Json* Fields::any(const char* key) {
  used_.insert(key);
  const auto it = json_.find(key);
  return it == json_.end() || it->is_null() ? nullptr : &*it;
}

void Fields::wrong(const char* key, const std::string& expected) {
  const auto it = json_.find(key);
  refuse({422, "invalid_value",
          fmt::format("[request] {}{} expected {}, got {}", prefix_, key, expected,
                      it == json_.end() ? "nothing" : one_line(dump_json(*it), 60)),
          prefix_ + key});
}

std::optional<std::string> Fields::text(const char* key) {
  const Json* j = any(key);
  if (!j) return {};
  if (!j->is_string()) return wrong(key, "text"), std::nullopt;
  return j->get<std::string>();
}

std::optional<std::string> Fields::choice(const char* key, std::initializer_list<const char*> choices) {
  const auto t = text(key);
  if (!t) return {};
  for (const char* c : choices)
    if (*t == c) return t;
  return wrong(key, fmt::format("one of {}", fmt::join(choices, ", "))), std::nullopt;
}

std::optional<int64_t> Fields::integer(const char* key, int64_t min, int64_t max) {
  const Json* j = any(key);
  if (!j) return {};
  // 20.0 is a whole number too; some clients have no other kind.
  const double d = j->is_number() ? j->get<double>() : NAN;
  if (!(d >= static_cast<double>(min) && d <= static_cast<double>(max)) || d != std::floor(d))
    return wrong(key, fmt::format("a whole number from {} to {}", min, max)), std::nullopt;
  return static_cast<int64_t>(d);
}

namespace {
std::optional<uint64_t> as_seed(const Json& j) {
  if (j.is_number_unsigned()) return j.get<uint64_t>();
  if (j.is_number_float()) {
    const double d = j.get<double>();
    if (d >= 0 && d < 9e15 && d == std::floor(d)) return static_cast<uint64_t>(d);
  }
  return {};
}
}  // namespace

std::optional<uint64_t> Fields::seed(const char* key) {
  const Json* j = any(key);
  if (!j) return {};
  const auto s = as_seed(*j);
  if (!s) wrong(key, "a whole number from 0 to 18446744073709551615");
  return s;
}

std::optional<double> Fields::number(const char* key, double min, double max) {
  const Json* j = any(key);
  if (!j) return {};
  const double d = j->is_number() ? j->get<double>() : NAN;
  if (!(d >= min && d <= max)) return wrong(key, fmt::format("a number from {:g} to {:g}", min, max)), std::nullopt;
  return d;
}

std::optional<bool> Fields::boolean(const char* key) {
  const Json* j = any(key);
  if (!j) return {};
  if (!j->is_boolean()) return wrong(key, "true or false"), std::nullopt;
  return j->get<bool>();
}

std::optional<std::vector<std::string>> Fields::texts(const char* key) {
  const Json* j = any(key);
  if (!j) return {};
  std::vector<std::string> out;
  if (j->is_array())
    for (const Json& e : *j)
      if (e.is_string()) out.push_back(e.get<std::string>());
  if (!j->is_array() || out.size() != j->size()) return wrong(key, "a list of texts"), std::nullopt;
  return out;
}

std::optional<std::vector<uint64_t>> Fields::seeds(const char* key) {
  const Json* j = any(key);
  if (!j) return {};
  std::vector<uint64_t> out;
  if (j->is_array())
    for (const Json& e : *j)
      if (const auto s = as_seed(e)) out.push_back(*s);
  if (!j->is_array() || out.size() != j->size() || out.empty()) return wrong(key, "a list of seeds"), std::nullopt;
  return out;
}

std::optional<Json> Fields::object(const char* key) {
  const Json* j = any(key);
  if (!j) return {};
  if (!j->is_object()) return wrong(key, "an object"), std::nullopt;
  return *j;
}

std::vector<std::string> Fields::unknown() const {
  std::vector<std::string> out;
  for (const auto& [key, value] : json_.items())
    if (!used_.count(key)) out.push_back(fmt::format("unknown field '{}{}' was ignored", prefix_, one_line(key, 60)));
  return out;
}

}  // namespace danqing::server
