// Runs a parsed template. One object renders once.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "text/jinja_ast.h"

namespace danqing::jinja {

/// Arguments of a call, filter or test.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
  /// Argument number i, or the one called `name`; null if absent.
  const Value* get(size_t i, std::string_view name = "") const;
  /// Error unless there are at most `max` positional arguments and all names are among `names`.
  Result<void> check(std::string_view what, size_t max, std::initializer_list<std::string_view> names = {}) const;
};

Result<Value> apply_filter(const std::string& name, const Value& input, const Arguments& args, Budget& budget);
Result<bool> apply_test(const std::string& name, const Value& input, const Arguments& args, Budget& budget);
/// A method of a string or dict. Error: there is no such method, or it is not supported.
Result<Value> call_method(const Value& object, const std::string& name, const Arguments& args, Budget& budget);
bool has_method(const Value& object, const std::string& name);
Result<Value> call_builtin(const std::string& name, const Arguments& args, Budget& budget);
bool known_builtin(std::string_view name);
Result<Value> arithmetic(const std::string& op, const Value& a, const Value& b, Budget& budget);
Result<bool> contains(const Value& container, const Value& item, Budget& budget);
/// What a for loop goes through: list items, dict keys, characters; nothing for an undefined value.
Result<Items> iterate(const Value& v, Budget& budget);

class Evaluator {
 public:
  explicit Evaluator(std::map<std::string, Value> globals) { scopes_.push_back(std::move(globals)); }
  /// Error: "line N: ...".
  Result<std::string> run(const Node& body);

 private:
  enum class Flow { next, leave, again };  // again: continue with the next round of the loop

  Result<Flow> execute(const Node& n, std::string& out);
  Result<Flow> execute_kind(const Node& n, std::string& out);
  Result<Flow> body(const Node& n, std::string& out);
  Result<Flow> loop(const Node& n, std::string& out);
  Result<void> set(const Node& n);
  Result<void> set_block(const Node& n);
  Result<void> bind(const std::vector<std::string>& names, const Value& v, std::map<std::string, Value>& scope);
  Result<Value> eval(const Node& n);
  Result<Value> eval_kind(const Node& n);
  Result<Value> eval_chain(const Node& n);
  Result<Value> eval_comparison(const Node& n);
  Result<Value> eval_index(const Node& n);
  Result<Value> eval_slice(const Node& n);
  Result<Value> eval_call(const Node& n);
  Result<Value> call_macro(const Node& macro, const Arguments& args);
  Result<Arguments> arguments(const Node& n);
  Value look_up(const std::string& name) const;

  std::vector<std::map<std::string, Value>> scopes_;
  Budget budget_;
  int depth_ = 0;
};

}  // namespace danqing::jinja
