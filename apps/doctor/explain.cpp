#include "doctor/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "base/try.h"

namespace danqing::doctor {

/// data/doctor/errors.json, inside the binary.
std::string_view error_table();

namespace {

constexpr size_t kMostBytes = size_t{4} << 20;

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

Result<Text> read_text_pair(const Json& j, const std::string& where) {
  DQ_TRY(const JsonObject o, JsonObject::of(j, where));
  Text t;
  DQ_TRY(t.en, o.string("en"));
  DQ_TRY(t.zh, o.string("zh"));
  return t;
}

Result<KnownError> read_error(const Json& j) {
  DQ_TRY(const JsonObject o, JsonObject::of(j, "errors.json"));
  KnownError e;
  DQ_TRY(e.id, o.string("id"));
  DQ_TRY(e.source, o.string("source"));
  const Json *title = o.get("title"), *cause = o.get("cause"), *match = o.get("match"), *steps = o.get("steps");
  if (!title || !cause || !match || !steps || !steps->is_object())
    return bad_input("errors.json: {} lacks a field", e.id);
  DQ_TRY(e.title, read_text_pair(*title, "errors.json: " + e.id));
  DQ_TRY(e.cause, read_text_pair(*cause, "errors.json: " + e.id));
  const Json en = steps->value("en", Json::array()), zh = steps->value("zh", Json::array());
  if (en.size() != zh.size()) return bad_input("errors.json: {} has steps in one language only", e.id);
  for (size_t i = 0; i < en.size(); ++i) e.steps.push_back({en[i].get<std::string>(), zh[i].get<std::string>()});
  for (const Json& all : *match) e.match.push_back(all.get<std::vector<std::string>>());
  return e;
}

std::vector<KnownError> read_table() {
  std::vector<KnownError> all;
  const auto json = parse_json(error_table(), "errors.json");
  if (!json || !json->is_array()) return all;
  for (const Json& j : *json) {
    try {
      if (auto e = read_error(j)) all.push_back(std::move(*e));
    } catch (const std::exception& e) {  // of the wrong type: a mistake in our own table, which its test finds
      log::debug("errors.json: {}", e.what());
    }
  }
  return all;
}

std::string line_at(std::string_view log, size_t at) {
  const size_t newline = log.rfind('\n', at), begin = newline == std::string_view::npos ? 0 : newline + 1;
  return one_line(log.substr(begin, std::min(log.find('\n', at), log.size()) - begin), 160);
}

}  // namespace

Result<Language> parse_language(std::string_view word) {
  if (word == "en") return Language::english;
  if (word == "zh") return Language::chinese;
  if (!word.empty()) return usage_error("[--lang] expected en or zh, got '{}'", one_line(word, 40));
  for (const char* name : {"LC_ALL", "LC_MESSAGES", "LANG"})
    if (const char* v = std::getenv(name); v && *v)
      return std::string_view(v).substr(0, 2) == "zh" ? Language::chinese : Language::english;
  return Language::english;
}

const std::vector<KnownError>& known_errors() {
  static const std::vector<KnownError> table = read_table();
  return table;
}

std::vector<Explanation> explain(std::string_view log, size_t most) {
  log = log.substr(0, kMostBytes);
  std::string text(log);
  std::transform(text.begin(), text.end(), text.begin(), lower);
  struct Found {
    Explanation what;
    size_t weight;
  };
  std::vector<Found> found;
  for (const KnownError& e : known_errors()) {
    size_t weight = 0, at = 0;
    for (const auto& all : e.match) {
      size_t bytes = 0, first = std::string::npos;
      const bool here = std::all_of(all.begin(), all.end(), [&](const std::string& part) {
        const size_t position = text.find(part);
        if (first == std::string::npos) first = position;
        bytes += part.size();
        return position != std::string::npos;
      });
      if (here && bytes > weight) weight = bytes, at = first;
    }
    if (text == e.id) weight = std::string::npos;  // asked for by its name
    if (weight > 0) found.push_back({{&e, line_at(log, at)}, weight});
  }
  std::stable_sort(found.begin(), found.end(), [](const Found& a, const Found& b) { return a.weight > b.weight; });
  std::vector<Explanation> out;
  for (size_t i = 0; i < std::min(most, found.size()); ++i) out.push_back(found[i].what);
  return out;
}

std::string likely_cause(const Error& error, Language language) {
  const auto has = [&](std::string_view part) { return error.message.find(part) != std::string::npos; };
  if (error.code != ErrorCode::device_lost && !has("refusal from its driver") && !has("got no support for it"))
    return "";
  const auto found = explain(error.message, 1);
  if (found.empty()) return "";
  const KnownError& e = *found[0].error;
  return language == Language::chinese
             ? fmt::format("可能的原因：{}（详见 danqing doctor --explain {}）", e.title.zh, e.id)
             : fmt::format("likely cause: {} (see danqing doctor --explain {})", e.title.en, e.id);
}

}  // namespace danqing::doctor
