// Filters and tests.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/text.h"
#include "base/try.h"
#include "text/jinja_eval.h"
#include "text/jinja_text.h"
#include "text/utf8.h"

namespace danqing::jinja {
namespace {

Result<int64_t> length(const Value& v) {
  if (const std::string* s = v.string()) {
    int64_t n = 0;
    for (size_t i = 0; i < s->size(); ++n) utf8::next(*s, i);
    return n;
  }
  if (const Items* l = v.list()) return static_cast<int64_t>(l->size());
  if (const Entries* d = v.dict()) return static_cast<int64_t>(d->size());
  if (v.undefined()) return int64_t{0};
  return bad_input("a {} has no length", type_name(v));
}

Result<Value> to_integer(const Value& v, const Arguments& args) {
  DQ_CHECK(args.check("int", 1, {"default"}));
  const Value fallback = args.get(0, "default") ? *args.get(0, "default") : Value(int64_t{0});
  if (v.is_integer()) return Value(v.integer());
  double d = 0;
  if (v.as<double>()) {
    d = v.number();
  } else if (v.string()) {
    const std::string s = strip(*v.string(), {}, true, true);
    const char *begin = s.data() + (!s.empty() && s[0] == '+' ? 1 : 0), *end = s.data() + s.size();
    int64_t i = 0;
    if (const auto r = std::from_chars(begin, end, i); r.ec == std::errc() && r.ptr == end && begin != end)
      return Value(i);
    if (const auto r = std::from_chars(begin, end, d); r.ec != std::errc() || r.ptr != end || begin == end)
      return fallback;
  } else {
    return fallback;
  }
  if (!(std::fabs(d) < 9e18)) return fallback;
  return Value(static_cast<int64_t>(d));
}

Result<Value> join_items(const Value& v, const Arguments& args, Budget& budget) {
  DQ_CHECK(args.check("join", 1, {"d"}));
  DQ_TRY(const Items items, iterate(v, budget));
  std::string separator, out;
  if (const Value* d = args.get(0, "d")) {
    DQ_TRY(separator, to_text(*d, budget));
  }
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) {
      DQ_CHECK(budget.spend(1, separator.size()));
      out += separator;
    }
    DQ_CHECK(append_text(out, items[i], false, budget));
  }
  return Value(std::move(out));
}

Result<Value> json(const Value& v, const Arguments& args, Budget& budget) {
  DQ_CHECK(args.check("tojson", 0, {"indent", "ensure_ascii"}));
  const Value *indent = args.get(0, "indent"), *ascii = args.get(0, "ensure_ascii");
  if (ascii && truthy(*ascii)) return bad_input("tojson with ensure_ascii is not supported");
  int64_t spaces = -1;
  if (indent && !indent->none()) spaces = indent->is_integer() ? indent->integer() : 99;
  if (spaces < -1 || spaces > 16) return bad_input("tojson expected an indent of 0 to 16");
  std::string out;
  DQ_CHECK(append_json(out, v, static_cast<int>(spaces), 0, budget));
  return Value(std::move(out));
}

Result<Value> first_or_last(const Value& v, bool last, Budget& budget) {
  DQ_TRY(const Items items, iterate(v, budget));
  if (items.empty()) return Value(Undefined{last ? "the last item of nothing" : "the first item of nothing"});
  return last ? items.back() : items.front();
}

Result<Value> reversed(const Value& v, Budget& budget) {
  DQ_TRY(Items items, iterate(v, budget));
  std::reverse(items.begin(), items.end());
  if (!v.string()) return make_list(std::move(items), budget);
  std::string out;
  for (const Value& c : items) out += *c.string();
  return Value(std::move(out));
}

constexpr std::string_view kFilters[] = {"trim",   "tojson",  "length",  "count", "upper", "lower",  "capitalize",
                                         "title",  "replace", "default", "d",     "first", "last",   "join",
                                         "string", "int",     "list",    "safe",  "items", "reverse"};
constexpr std::string_view kTests[] = {"defined",  "undefined", "none",    "string", "mapping",     "iterable",
                                       "sequence", "number",    "integer", "float",  "boolean",     "true",
                                       "false",    "callable",  "odd",     "even",   "divisibleby", "in",
                                       "eq",       "equalto",   "ne"};

template <class Table>
bool among(const Table& table, std::string_view name) {
  return std::find(std::begin(table), std::end(table), name) != std::end(table);
}

}  // namespace

bool known_filter(std::string_view name) { return among(kFilters, name); }
bool known_test(std::string_view name) { return among(kTests, name); }

Result<Value> apply_filter(const std::string& name, const Value& v, const Arguments& args, Budget& budget) {
  if (name == "default" || name == "d") {
    DQ_CHECK(args.check(name, 2, {"default_value", "boolean"}));
    const Value *fallback = args.get(0, "default_value"), *boolean = args.get(1, "boolean");
    const bool use = v.undefined() || (boolean && truthy(*boolean) && !truthy(v));
    return !use ? v : fallback ? *fallback : Value(std::string());
  }
  if (name == "tojson") return json(v, args, budget);
  if (name == "join") return join_items(v, args, budget);
  if (name == "int") return to_integer(v, args);
  if (name == "trim" || name == "replace") {
    DQ_TRY(const std::string text, to_text(v, budget));
    if (name == "replace") return call_method(Value(text), "replace", args, budget);
    Arguments chars = args;
    for (auto& [key, value] : chars.named)
      if (key == "chars") chars.positional = {value};
    return call_method(Value(text), "strip", {chars.positional, {}}, budget);
  }
  DQ_CHECK(args.check(name, 0));
  if (name == "first" || name == "last") return first_or_last(v, name == "last", budget);
  if (name == "reverse") return reversed(v, budget);
  if (name == "length" || name == "count") {
    DQ_TRY(const int64_t n, length(v));
    return Value(n);
  }
  if (name == "list") {
    DQ_TRY(Items items, iterate(v, budget));
    return make_list(std::move(items), budget);
  }
  if (name == "items") {
    if (v.undefined()) return make_list({}, budget);
    if (!v.dict()) return bad_input("the filter 'items' expected a dict, got a {}", type_name(v));
    return call_method(v, "items", {}, budget);
  }
  DQ_TRY(std::string text, to_text(v, budget));
  if (name == "string" || name == "safe") return Value(std::move(text));
  return call_method(Value(std::move(text)), name, {}, budget);  // upper, lower, capitalize, title
}

Result<bool> apply_test(const std::string& name, const Value& v, const Arguments& args, Budget& budget) {
  const bool with_argument = name == "divisibleby" || name == "in" || name == "eq" || name == "equalto" || name == "ne";
  DQ_CHECK(args.check(name, with_argument ? 1 : 0));
  if (with_argument && !args.get(0)) return bad_input("the test '{}' expected an argument", name);
  if (name == "defined") return !v.undefined();
  if (name == "undefined") return v.undefined();
  if (name == "none") return v.none();
  if (name == "string") return v.string() != nullptr;
  if (name == "mapping") return v.dict() != nullptr;
  if (name == "iterable" || name == "sequence") return v.undefined() || v.string() || v.list() || v.dict();
  if (name == "number") return v.is_number();
  if (name == "integer") return v.as<int64_t>() != nullptr;
  if (name == "float") return v.as<double>() != nullptr;
  if (name == "boolean") return v.as<bool>() != nullptr;
  if (name == "true" || name == "false") return v.as<bool>() && *v.as<bool>() == (name == "true");
  if (name == "callable") return v.as<Function>() != nullptr;
  if (name == "in") return contains(*args.get(0), v, budget);
  if (name == "eq" || name == "equalto" || name == "ne") {
    DQ_TRY(const bool same, equal(v, *args.get(0), budget));
    return same == (name != "ne");
  }
  const int64_t divisor = name == "divisibleby" ? args.get(0)->integer() : 2;
  if (!v.is_integer() || divisor == 0) return bad_input("the test '{}' expected integers", name);
  const bool divides = divisor == -1 || v.integer() % divisor == 0;
  return divides == (name != "odd");
}

}  // namespace danqing::jinja
