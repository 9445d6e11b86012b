#include "text/jinja_value.h"

#include <algorithm>
#include <cmath>

#include "base/try.h"
#include "text/python_json.h"

namespace danqing::jinja {
namespace {

constexpr int kMaxDepth = 64;

Result<int> depth_with(int depth, const Value& v) {
  if (v.as<std::shared_ptr<Namespace>>() || v.as<Function>())
    return bad_input("a {} inside a list or dict is not supported", type_name(v));
  if (const auto* l = v.as<std::shared_ptr<const List>>()) depth = std::max(depth, (*l)->depth + 1);
  if (const auto* d = v.as<std::shared_ptr<const Dict>>()) depth = std::max(depth, (*d)->depth + 1);
  if (depth > kMaxDepth) return bad_input("values nested deeper than {} levels", kMaxDepth);
  return depth;
}

std::string python_float(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d < 0 ? "-inf" : "inf";
  std::string s = fmt::format("{}", d);
  if (s.find_first_of(".e") == std::string::npos) s += ".0";
  return s;
}

void append_repr(std::string& out, const std::string& s) {
  const char quote = s.find('\'') != std::string::npos && s.find('"') == std::string::npos ? '"' : '\'';
  out += quote;
  for (const char c : s) {
    if (c == quote || c == '\\')
      (out += '\\') += c;
    else if (c == '\n')
      out += "\\n";
    else if (c == '\r')
      out += "\\r";
    else if (c == '\t')
      out += "\\t";
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      out += fmt::format("\\x{:02x}", static_cast<unsigned>(c));
    else
      out += c;
  }
  out += quote;
}

}  // namespace

const Items* Value::list() const {
  const auto* p = as<std::shared_ptr<const List>>();
  return p ? &(*p)->items : nullptr;
}

const Entries* Value::dict() const {
  const auto* p = as<std::shared_ptr<const Dict>>();
  return p ? &(*p)->entries : nullptr;
}

int64_t Value::integer() const {
  if (const bool* b = as<bool>()) return *b ? 1 : 0;
  const auto* i = as<int64_t>();
  return i ? *i : 0;
}

double Value::number() const {
  const auto* d = as<double>();
  return d ? *d : static_cast<double>(integer());
}

const Value* Value::find(const std::string& key) const {
  if (const Entries* entries = dict()) {
    for (const auto& [k, v] : *entries)
      if (k == key) return &v;
  } else if (const auto* ns = as<std::shared_ptr<Namespace>>()) {
    const auto it = (*ns)->attributes.find(key);
    if (it != (*ns)->attributes.end()) return &it->second;
  }
  return nullptr;
}

Result<void> Budget::spend(int64_t n_steps, size_t n_bytes) {
  steps -= n_steps;
  bytes -= static_cast<int64_t>(std::min<size_t>(n_bytes, size_t{1} << 40));
  if (steps < 0) return bad_input("the template takes too many steps");
  if (bytes < 0) return bad_input("the template produces too much text");
  return {};
}

Result<Value> make_list(Items items, Budget& budget) {
  DQ_CHECK(budget.spend(1, items.size() * sizeof(Value)));
  int depth = 1;
  for (const Value& v : items) {
    DQ_TRY(depth, depth_with(depth, v));
  }
  return Value(std::make_shared<const List>(List{depth, std::move(items)}));
}

Result<Value> make_dict(Entries entries, Budget& budget) {
  DQ_CHECK(budget.spend(1, entries.size() * sizeof(Entries::value_type)));
  if (entries.size() > 1000) return bad_input("a dict with more than 1000 entries is not supported");
  int depth = 1;
  Entries unique;
  for (auto& [key, value] : entries) {
    DQ_TRY(depth, depth_with(depth, value));
    const auto same = std::find_if(unique.begin(), unique.end(), [&k = key](const auto& e) { return e.first == k; });
    if (same != unique.end())
      same->second = std::move(value);
    else
      unique.emplace_back(std::move(key), std::move(value));
  }
  return Value(std::make_shared<const Dict>(Dict{depth, std::move(unique)}));
}

bool truthy(const Value& v) {
  if (v.undefined() || v.none()) return false;
  if (v.is_number()) return v.number() != 0;
  if (const std::string* s = v.string()) return !s->empty();
  if (const Items* l = v.list()) return !l->empty();
  if (const Entries* d = v.dict()) return !d->empty();
  return true;
}

const char* type_name(const Value& v) {
  static constexpr const char* names[] = {"undefined value", "None", "bool", "int",       "float",
                                          "string",          "list", "dict", "namespace", "function"};
  return names[v.index()];
}

Result<bool> equal(const Value& a, const Value& b, Budget& budget) {
  DQ_CHECK(budget.spend(1));
  if (a.is_integer() && b.is_integer()) return a.integer() == b.integer();
  if (a.is_number() && b.is_number()) return a.number() == b.number();
  if (a.index() != b.index()) return false;
  if (const std::string* s = a.string()) return *s == *b.string();
  if (const Items* x = a.list()) {
    const Items& y = *b.list();
    bool same = x->size() == y.size();
    for (size_t i = 0; same && i < x->size(); ++i) {
      DQ_TRY(same, equal((*x)[i], y[i], budget));
    }
    return same;
  }
  if (const Entries* x = a.dict()) {
    bool same = x->size() == b.dict()->size();
    for (size_t i = 0; same && i < x->size(); ++i) {
      const Value* other = b.find((*x)[i].first);
      if (!other) return false;
      DQ_TRY(same, equal((*x)[i].second, *other, budget));
    }
    return same;
  }
  if (const auto* ns = a.as<std::shared_ptr<Namespace>>()) return *ns == *b.as<std::shared_ptr<Namespace>>();
  if (const auto* f = a.as<Function>()) return f->macro == b.as<Function>()->macro && f->name == b.as<Function>()->name;
  return true;  // None and None, undefined and undefined
}

Result<int> compare(const Value& a, const Value& b, Budget& budget) {
  DQ_CHECK(budget.spend(1));
  if (a.is_integer() && b.is_integer()) return a.integer() < b.integer() ? -1 : a.integer() > b.integer() ? 1 : 0;
  if (a.is_number() && b.is_number()) return a.number() < b.number() ? -1 : a.number() > b.number() ? 1 : 0;
  if (a.string() && b.string()) {
    const int c = a.string()->compare(*b.string());  // UTF-8 sorts as its code points do
    return c < 0 ? -1 : c > 0 ? 1 : 0;
  }
  return bad_input("cannot compare a {} with a {}", type_name(a), type_name(b));
}

Result<void> append_text(std::string& out, const Value& v, bool quoted, Budget& budget) {
  const size_t before = out.size();
  if (v.none())
    out += "None";
  else if (const bool* b = v.as<bool>())
    out += *b ? "True" : "False";
  else if (const auto* i = v.as<int64_t>())
    out += fmt::format("{}", *i);
  else if (const auto* d = v.as<double>())
    out += python_float(*d);
  else if (const std::string* s = v.string())
    quoted ? append_repr(out, *s) : void(out += *s);
  else if (const Items* items = v.list()) {
    out += '[';
    for (size_t k = 0; k < items->size(); ++k) {
      if (k > 0) out += ", ";
      DQ_CHECK(append_text(out, (*items)[k], true, budget));
    }
    out += ']';
  } else if (const Entries* entries = v.dict()) {
    out += '{';
    for (size_t k = 0; k < entries->size(); ++k) {
      if (k > 0) out += ", ";
      append_repr(out, (*entries)[k].first);
      out += ": ";
      DQ_CHECK(append_text(out, (*entries)[k].second, true, budget));
    }
    out += '}';
  } else if (!v.undefined()) {
    return bad_input("cannot print a {}", type_name(v));
  }
  return budget.spend(1, out.size() - before);
}

Result<std::string> to_text(const Value& v, Budget& budget) {
  std::string out;
  DQ_CHECK(append_text(out, v, false, budget));
  return out;
}

Result<void> append_json(std::string& out, const Value& v, int indent, int level, Budget& budget) {
  const size_t before = out.size();
  const auto line = [&](int depth) {
    if (indent >= 0) out.append("\n").append(static_cast<size_t>(indent) * static_cast<size_t>(depth), ' ');
  };
  const char* comma = indent >= 0 ? "," : ", ";
  if (v.none())
    out += "null";
  else if (const bool* b = v.as<bool>())
    out += *b ? "true" : "false";
  else if (v.is_number())
    DQ_CHECK(append_text(out, v, false, budget));
  else if (const std::string* s = v.string())
    append_json_string(out, *s);
  else if (const Items* items = v.list()) {
    out += '[';
    for (size_t k = 0; k < items->size(); ++k) {
      if (k > 0) out += comma;
      line(level + 1);
      DQ_CHECK(append_json(out, (*items)[k], indent, level + 1, budget));
    }
    if (!items->empty()) line(level);
    out += ']';
  } else if (const Entries* entries = v.dict()) {
    out += '{';
    for (size_t k = 0; k < entries->size(); ++k) {
      if (k > 0) out += comma;
      line(level + 1);
      append_json_string(out, (*entries)[k].first);
      out += ": ";
      DQ_CHECK(append_json(out, (*entries)[k].second, indent, level + 1, budget));
    }
    if (!entries->empty()) line(level);
    out += '}';
  } else {
    return bad_input("a {} cannot be written as JSON", type_name(v));
  }
  return budget.spend(1, out.size() - before);
}

}  // namespace danqing::jinja
