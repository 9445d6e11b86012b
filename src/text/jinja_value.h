// Values of the template interpreter. Containers never change once made and nest to a fixed depth, so neither cycles
// nor deep recursion can come up; a namespace is the one thing that changes, and it cannot be put into a container.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "danqing/result.h"

namespace danqing::jinja {

struct Node;
struct Value;

struct Undefined {
  std::string name;  // for messages
};
struct None {};
using Items = std::vector<Value>;
using Entries = std::vector<std::pair<std::string, Value>>;
struct List {
  int depth;
  Items items;
};
struct Dict {
  int depth;
  Entries entries;  // in order of insertion, keys unique
};
struct Namespace {
  std::map<std::string, Value> attributes;
};
struct Function {
  std::string name;             // a built-in, or
  const Node* macro = nullptr;  // a macro of the template
};

struct Value : std::variant<Undefined, None, bool, int64_t, double, std::string, std::shared_ptr<const List>,
                            std::shared_ptr<const Dict>, std::shared_ptr<Namespace>, Function> {
  using variant::variant;
  template <class T>
  const T* as() const {
    return std::get_if<T>(this);
  }
  const std::string* string() const { return as<std::string>(); }
  const Items* list() const;
  const Entries* dict() const;
  bool undefined() const { return as<Undefined>() != nullptr; }
  bool none() const { return as<None>() != nullptr; }
  bool is_integer() const { return as<int64_t>() || as<bool>(); }
  int64_t integer() const;  ///< of an int or a bool
  bool is_number() const { return is_integer() || as<double>(); }
  double number() const;
  const Value* find(const std::string& key) const;  ///< member of a dict or namespace
};

/// How much work is left: evaluation steps and bytes of text produced.
struct Budget {
  int64_t steps = 2'000'000;
  int64_t bytes = int64_t{64} << 20;
  Result<void> spend(int64_t n_steps, size_t n_bytes = 0);
};

Result<Value> make_list(Items items, Budget& budget);
Result<Value> make_dict(Entries entries, Budget& budget);

bool truthy(const Value& v);
const char* type_name(const Value& v);
Result<bool> equal(const Value& a, const Value& b, Budget& budget);
/// -1, 0, 1; error for types that Python does not order.
Result<int> compare(const Value& a, const Value& b, Budget& budget);
/// Python's str(); `quoted`: repr().
Result<void> append_text(std::string& out, const Value& v, bool quoted, Budget& budget);
Result<std::string> to_text(const Value& v, Budget& budget);
/// json.dumps(ensure_ascii=False); indent < 0: on one line.
Result<void> append_json(std::string& out, const Value& v, int indent, int level, Budget& budget);

}  // namespace danqing::jinja
