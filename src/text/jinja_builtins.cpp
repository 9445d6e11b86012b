// Operators, built-in functions and the methods of strings and dicts.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/text.h"
#include "base/try.h"
#include "text/jinja_eval.h"
#include "text/jinja_text.h"
#include "text/utf8.h"

namespace danqing::jinja {
namespace {

constexpr size_t kMaxString = size_t{16} << 20;

Error no_operation(const std::string& op, const Value& a, const Value& b) {
  for (const Value* v : {&a, &b})
    if (v->undefined()) return bad_input("'{}' is undefined", one_line(v->as<Undefined>()->name, 60));
  return bad_input("'{}' is not possible between a {} and a {}", op, type_name(a), type_name(b));
}

// Python's // and % round towards minus infinity.
Result<Value> integer_arithmetic(const std::string& op, int64_t a, int64_t b) {
  int64_t r = 0;
  bool overflow = false;
  if (op == "+")
    overflow = __builtin_add_overflow(a, b, &r);
  else if (op == "-")
    overflow = __builtin_sub_overflow(a, b, &r);
  else if (op == "*")
    overflow = __builtin_mul_overflow(a, b, &r);
  else if (op == "//" || op == "%") {
    if (b == 0) return bad_input("division by zero");
    if (b == -1) {
      overflow = op == "//" && a == std::numeric_limits<int64_t>::min();
      r = op == "//" && !overflow ? -a : 0;
    } else {
      const bool adjust = a % b != 0 && (a % b < 0) != (b < 0);
      r = op == "//" ? a / b - (adjust ? 1 : 0) : a % b + (adjust ? b : 0);
    }
  } else {  // **, exponent >= 0
    r = 1;
    if (b > 64 && a != 0 && a != 1 && a != -1) overflow = true;
    for (int64_t k = 0; !overflow && k < (b > 64 ? b % 2 + 2 : b); ++k) overflow = __builtin_mul_overflow(r, a, &r);
  }
  if (overflow) return bad_input("an integer beyond 64 bits");
  return Value(r);
}

Result<Value> float_arithmetic(const std::string& op, double a, double b) {
  if (op == "+") return Value(a + b);
  if (op == "-") return Value(a - b);
  if (op == "*") return Value(a * b);
  if (op == "**") return Value(std::pow(a, b));
  if (b == 0) return bad_input("division by zero");
  if (op == "/") return Value(a / b);
  if (op == "//") return Value(std::floor(a / b));
  return Value(a - b * std::floor(a / b));
}

Result<Value> repeat(const std::string& s, int64_t n, Budget& budget) {
  const size_t times = n > 0 ? static_cast<size_t>(n) : 0;
  if (!s.empty() && times > kMaxString / s.size()) return bad_input("a string of more than {} bytes", kMaxString);
  DQ_CHECK(budget.spend(1, s.size() * times));
  std::string out;
  for (size_t i = 0; i < times && !s.empty(); ++i) out += s;
  return Value(std::move(out));
}

Result<std::optional<std::string>> optional_text(const Arguments& args, size_t i, std::string_view name) {
  const Value* v = args.get(i, name);
  if (!v || v->none()) return std::optional<std::string>();
  if (!v->string()) return bad_input("expected a string as argument, got a {}", type_name(*v));
  return std::optional<std::string>(*v->string());
}

Result<int64_t> integer_argument(const Arguments& args, size_t i, std::string_view name, int64_t fallback) {
  const Value* v = args.get(i, name);
  if (!v) return fallback;
  if (!v->is_integer()) return bad_input("expected an integer as argument, got a {}", type_name(*v));
  return v->integer();
}

// startswith and endswith take one string or a tuple of them.
Result<Value> has_affix(const std::string& s, const Arguments& args, bool at_end) {
  DQ_CHECK(args.check("startswith or endswith", 1));
  const Value* v = args.get(0);
  const Items one = v && v->string() ? Items{*v} : Items{};
  const Items* affixes = v && v->list() ? v->list() : &one;
  if (!v || (!v->list() && !v->string())) return bad_input("startswith and endswith expected a string");
  bool found = false;
  for (const Value& a : *affixes) {
    if (!a.string()) return bad_input("startswith and endswith expected strings");
    const std::string_view view(s), affix(*a.string());
    found = found || (at_end ? view.size() >= affix.size() && view.substr(view.size() - affix.size()) == affix
                             : view.substr(0, affix.size()) == affix);
  }
  return Value(found);
}

Result<Value> string_method(const std::string& s, const std::string& name, const Arguments& args, Budget& budget) {
  DQ_CHECK(budget.spend(1, s.size()));
  if (name == "startswith" || name == "endswith") return has_affix(s, args, name == "endswith");
  if (name == "strip" || name == "lstrip" || name == "rstrip") {
    DQ_CHECK(args.check(name, 1));
    DQ_TRY(const auto chars, optional_text(args, 0, ""));
    return Value(strip(s, chars, name != "rstrip", name != "lstrip"));
  }
  if (name == "split" || name == "rsplit") {
    DQ_CHECK(args.check(name, 2, {"sep", "maxsplit"}));
    DQ_TRY(const auto separator, optional_text(args, 0, "sep"));
    DQ_TRY(const int64_t limit, integer_argument(args, 1, "maxsplit", -1));
    if (separator && separator->empty()) return bad_input("split with an empty separator");
    Items items;
    for (std::string& part : split(s, separator.value_or(""), limit, name == "rsplit"))
      items.emplace_back(std::move(part));
    return make_list(std::move(items), budget);
  }
  if (name == "replace") {
    DQ_CHECK(args.check(name, 3, {"count"}));
    DQ_TRY(const auto old, optional_text(args, 0, ""));
    DQ_TRY(const auto with, optional_text(args, 1, ""));
    DQ_TRY(const int64_t limit, integer_argument(args, 2, "count", -1));
    if (!old || !with) return bad_input("replace expected two strings");
    if (with->size() > kMaxString / (s.size() + 1)) return bad_input("a string of more than {} bytes", kMaxString);
    std::string out = replace(s, *old, *with, limit);
    DQ_CHECK(budget.spend(1, out.size()));
    return Value(std::move(out));
  }
  DQ_CHECK(args.check(name, 0));
  if (name == "upper") return Value(upper(s));
  if (name == "lower") return Value(lower(s));
  if (name == "capitalize") return Value(capitalize(s));
  return Value(title(s));
}

Result<Value> dict_method(const Value& object, const std::string& name, const Arguments& args, Budget& budget) {
  if (name == "get") {
    DQ_CHECK(args.check(name, 2));
    DQ_TRY(const auto key, optional_text(args, 0, ""));
    const Value* member = key ? object.find(*key) : nullptr;
    if (member) return *member;
    return args.get(1) ? *args.get(1) : Value(None{});
  }
  DQ_CHECK(args.check(name, 0));
  Items items;
  for (const auto& [key, value] : *object.dict()) {
    if (name == "keys") items.emplace_back(key);
    if (name == "values") items.push_back(value);
    if (name == "items") {
      DQ_TRY(Value pair, make_list({Value(key), value}, budget));
      items.push_back(std::move(pair));
    }
  }
  return make_list(std::move(items), budget);
}

constexpr std::string_view kStringMethods[] = {"strip",    "lstrip",  "rstrip", "split", "rsplit",     "startswith",
                                               "endswith", "replace", "upper",  "lower", "capitalize", "title"};
constexpr std::string_view kDictMethods[] = {"get", "keys", "values", "items"};
constexpr std::string_view kFunctions[] = {"raise_exception", "namespace", "range", "dict"};

template <class Table>
bool among(const Table& table, std::string_view name) {
  return std::find(std::begin(table), std::end(table), name) != std::end(table);
}

}  // namespace

const Value* Arguments::get(size_t i, std::string_view name) const {
  if (i < positional.size()) return &positional[i];
  for (const auto& [key, value] : named)
    if (!name.empty() && key == name) return &value;
  return nullptr;
}

Result<void> Arguments::check(std::string_view what, size_t max, std::initializer_list<std::string_view> names) const {
  if (positional.size() > max)
    return bad_input("'{}' takes at most {} arguments, got {}", what, max, positional.size());
  for (const auto& [key, value] : named)
    if (std::find(names.begin(), names.end(), key) == names.end())
      return bad_input("'{}' has an argument '{}' that this build cannot read", what, one_line(key, 60));
  return {};
}

Result<Value> arithmetic(const std::string& op, const Value& a, const Value& b, Budget& budget) {
  if (op == "~") {
    DQ_TRY(std::string text, to_text(a, budget));
    DQ_CHECK(append_text(text, b, false, budget));
    return Value(std::move(text));
  }
  if (op == "+" && a.string() && b.string()) {
    const size_t size = a.string()->size() + b.string()->size();
    if (size > kMaxString) return bad_input("a string of more than {} bytes", kMaxString);
    DQ_CHECK(budget.spend(1, size));
    return Value(*a.string() + *b.string());
  }
  if (op == "+" && a.list() && b.list()) {
    Items items = *a.list();
    DQ_CHECK(budget.spend(1, (items.size() + b.list()->size()) * sizeof(Value)));
    items.insert(items.end(), b.list()->begin(), b.list()->end());
    return make_list(std::move(items), budget);
  }
  if (op == "*" && a.string() && b.is_integer()) return repeat(*a.string(), b.integer(), budget);
  if (op == "*" && a.is_integer() && b.string()) return repeat(*b.string(), a.integer(), budget);
  if (!a.is_number() || !b.is_number()) return no_operation(op, a, b);
  const bool integers = a.is_integer() && b.is_integer() && op != "/" && !(op == "**" && b.integer() < 0);
  return integers ? integer_arithmetic(op, a.integer(), b.integer()) : float_arithmetic(op, a.number(), b.number());
}

Result<bool> contains(const Value& container, const Value& item, Budget& budget) {
  if (const std::string* s = container.string()) {
    if (!item.string()) return no_operation("in", item, container);
    DQ_CHECK(budget.spend(1, s->size()));
    return s->find(*item.string()) != std::string::npos;
  }
  if (container.dict()) return item.string() && container.find(*item.string());
  if (container.undefined()) return false;
  if (!container.list()) return no_operation("in", item, container);
  for (const Value& v : *container.list()) {
    DQ_TRY(const bool same, equal(v, item, budget));
    if (same) return true;
  }
  return false;
}

Result<Items> iterate(const Value& v, Budget& budget) {
  Items items;
  if (v.undefined()) return items;
  if (const Items* list = v.list()) {
    items = *list;
  } else if (const Entries* entries = v.dict()) {
    for (const auto& entry : *entries) items.emplace_back(entry.first);
  } else if (const std::string* s = v.string()) {
    DQ_CHECK(budget.spend(1, s->size() * sizeof(Value)));
    for (size_t i = 0; i < s->size();) {
      const size_t begin = i;
      utf8::next(*s, i);
      items.emplace_back(s->substr(begin, i - begin));
    }
  } else {
    return bad_input("a {} cannot be iterated", type_name(v));
  }
  DQ_CHECK(budget.spend(1, items.size() * sizeof(Value)));
  return items;
}

bool has_method(const Value& object, const std::string& name) {
  return (object.string() && among(kStringMethods, name)) || (object.dict() && among(kDictMethods, name));
}

Result<Value> call_method(const Value& object, const std::string& name, const Arguments& args, Budget& budget) {
  if (object.string()) return string_method(*object.string(), name, args, budget);
  return dict_method(object, name, args, budget);
}

bool known_builtin(std::string_view name) { return among(kFunctions, name); }

Result<Value> call_builtin(const std::string& name, const Arguments& args, Budget& budget) {
  if (name == "raise_exception") {
    DQ_CHECK(args.check(name, 1, {"message"}));
    const Value* message = args.get(0, "message");
    DQ_TRY(const std::string text, to_text(message ? *message : Value(None{}), budget));
    return bad_input("the template refuses: {}", one_line(text, 300));
  }
  if (name == "range") {
    DQ_CHECK(args.check(name, 3));
    int64_t v[3] = {0, 0, 1};
    const size_t n = args.positional.size();
    if (n == 0) return bad_input("range expected a number");
    for (size_t i = 0; i < n; ++i) {
      DQ_TRY(v[n == 1 ? 1 : i], integer_argument(args, i, "", 0));
    }
    if (v[2] == 0) return bad_input("range with step 0");
    Items items;
    for (int64_t i = v[0]; v[2] > 0 ? i < v[1] : i > v[1];) {
      DQ_CHECK(budget.spend(1));
      if (items.size() >= 100000) return bad_input("a range of more than 100000 numbers");  // Jinja's own limit
      items.emplace_back(i);
      if (__builtin_add_overflow(i, v[2], &i)) break;
    }
    return make_list(std::move(items), budget);
  }
  if (args.positional.size() > 1) return bad_input("'{}' takes one dict and named arguments", name);
  Entries entries;
  if (const Value* first = args.get(0)) {
    if (!first->dict()) return bad_input("'{}' expected a dict, got a {}", name, type_name(*first));
    entries = *first->dict();
  }
  for (const auto& [key, value] : args.named) entries.emplace_back(key, value);
  if (name == "dict") return make_dict(std::move(entries), budget);
  auto ns = std::make_shared<Namespace>();
  for (auto& [key, value] : entries) {
    if (value.as<std::shared_ptr<Namespace>>()) return bad_input("a namespace inside a namespace is not supported");
    ns->attributes[key] = std::move(value);
  }
  return Value(std::move(ns));
}

}  // namespace danqing::jinja
