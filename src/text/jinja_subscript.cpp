// Indexing and slicing of template values, with Python's rules for negative numbers.
#include <algorithm>

#include "base/text.h"
#include "base/try.h"
#include "text/jinja_eval.h"
#include "text/utf8.h"

namespace danqing::jinja {
namespace {

// A string as its characters; lists as they are.
Result<Items> elements(const Value& v, Budget& budget) {
  if (v.list() || v.string()) return iterate(v, budget);
  return bad_input("a {} cannot be sliced", type_name(v));
}

}  // namespace

Result<Value> Evaluator::eval_index(const Node& n) {
  DQ_TRY(const Value object, eval(*n.kids[0]));
  DQ_TRY(const Value index, eval(*n.kids[1]));
  if (object.undefined()) return bad_input("'{}' is undefined", one_line(object.as<Undefined>()->name, 60));
  if (const std::string* key = index.string()) {
    const Value* member = object.find(*key);
    return member ? *member : Value(Undefined{*key});
  }
  if (!index.is_integer() || !(object.list() || object.string())) return Value(Undefined{"an index"});
  int64_t i = index.integer();
  if (const Items* items = object.list()) {
    const auto size = static_cast<int64_t>(items->size());
    if (i < 0) i += size;
    return i < 0 || i >= size ? Value(Undefined{"an item out of range"}) : (*items)[static_cast<size_t>(i)];
  }
  DQ_TRY(const Items chars, elements(object, budget_));
  const auto size = static_cast<int64_t>(chars.size());
  if (i < 0) i += size;
  return i < 0 || i >= size ? Value(Undefined{"a character out of range"}) : chars[static_cast<size_t>(i)];
}

Result<Value> Evaluator::eval_slice(const Node& n) {
  DQ_TRY(const Value object, eval(*n.kids[0]));
  if (object.undefined()) return bad_input("'{}' is undefined", one_line(object.as<Undefined>()->name, 60));
  DQ_TRY(const Items all, elements(object, budget_));
  const auto size = static_cast<int64_t>(all.size());
  const Value* given[3] = {nullptr, nullptr, nullptr};
  Value parts[3];
  for (size_t k = 0; k < 3; ++k) {
    if (!n.kids[k + 1]) continue;
    DQ_TRY(parts[k], eval(*n.kids[k + 1]));
    if (parts[k].none()) continue;
    if (!parts[k].is_integer()) return bad_input("a slice expected integers, got a {}", type_name(parts[k]));
    given[k] = &parts[k];
  }
  const int64_t step = given[2] ? std::clamp<int64_t>(given[2]->integer(), -size - 1, size + 1) : 1;
  if (step == 0) return bad_input("a slice with step 0");
  const auto bound = [&](const Value* v, int64_t fallback) {
    if (!v) return fallback;
    int64_t i = v->integer();
    if (i < 0) i = i < -size ? -1 : i + size;  // -1: before the beginning
    return step > 0 ? std::clamp<int64_t>(i, 0, size) : std::clamp<int64_t>(i, -1, size - 1);
  };
  const int64_t start = bound(given[0], step > 0 ? 0 : size - 1), stop = bound(given[1], step > 0 ? size : -1);
  Items items;
  for (int64_t i = start; step > 0 ? i < stop : i > stop; i += step) items.push_back(all[static_cast<size_t>(i)]);
  if (object.list()) return make_list(std::move(items), budget_);
  std::string text;
  for (const Value& c : items) text += *c.string();
  return Value(std::move(text));
}

}  // namespace danqing::jinja
