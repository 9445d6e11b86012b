#include "text/jinja_eval.h"

#include <algorithm>

#include "base/text.h"
#include "base/try.h"

namespace danqing::jinja {
namespace {

constexpr int kMaxDepth = 300;
constexpr size_t kMaxScopes = 200;

Error undefined_error(const Value& v) { return bad_input("'{}' is undefined", one_line(v.as<Undefined>()->name, 60)); }

}  // namespace

Result<std::string> Evaluator::run(const Node& n) {
  std::string out;
  DQ_TRY([[maybe_unused]] const Flow flow, body(n, out));
  return out;
}

Result<Evaluator::Flow> Evaluator::body(const Node& n, std::string& out) {
  for (const auto& kid : n.kids) {
    DQ_TRY(const Flow flow, execute(*kid, out));
    if (flow != Flow::next) return flow;
  }
  return Flow::next;
}

Result<Evaluator::Flow> Evaluator::execute(const Node& n, std::string& out) {
  if (depth_ >= kMaxDepth) return bad_input("line {}: statements and macros nested too deeply", n.line);
  ++depth_;
  Result<Flow> flow =
      budget_.spend(1) ? execute_kind(n, out) : Result<Flow>(bad_input("the template takes too many steps"));
  --depth_;
  return flow;
}

Result<Evaluator::Flow> Evaluator::execute_kind(const Node& n, std::string& out) {
  switch (n.kind) {
    case Kind::text_out:
      DQ_CHECK(budget_.spend(1, n.text.size()));
      out += n.text;
      return Flow::next;
    case Kind::output: {
      DQ_TRY(const Value v, eval(*n.kids[0]));
      auto printed = append_text(out, v, false, budget_);
      if (!printed) return bad_input("line {}: {}", n.line, printed.error().message);
      return Flow::next;
    }
    case Kind::branches:
      for (size_t i = 0; i < n.kids.size(); i += 2) {
        if (i + 1 == n.kids.size()) return body(*n.kids[i], out);
        DQ_TRY(const Value condition, eval(*n.kids[i]));
        if (truthy(condition)) return body(*n.kids[i + 1], out);
      }
      return Flow::next;
    case Kind::loop: return loop(n, out);
    case Kind::body: return body(n, out);
    case Kind::set: DQ_CHECK(set(n)); return Flow::next;
    case Kind::set_block: DQ_CHECK(set_block(n)); return Flow::next;
    case Kind::macro: scopes_.back()[n.text] = Function{n.text, &n}; return Flow::next;
    case Kind::break_loop: return Flow::leave;
    case Kind::continue_loop: return Flow::again;
    default: return bad_input("line {}: not a statement", n.line);
  }
}

Result<void> Evaluator::bind(const std::vector<std::string>& names, const Value& v,
                             std::map<std::string, Value>& scope) {
  if (names.size() == 1) {
    scope[names[0]] = v;
    return {};
  }
  const Items* items = v.list();
  if (!items || items->size() != names.size())
    return bad_input("expected {} values to unpack, got {}", names.size(),
                     items ? std::to_string(items->size()) : type_name(v));
  for (size_t i = 0; i < names.size(); ++i) scope[names[i]] = (*items)[i];
  return {};
}

Result<Evaluator::Flow> Evaluator::loop(const Node& n, std::string& out) {
  const auto located = [&](const Error& e) { return bad_input("line {}: {}", n.line, e.message); };
  DQ_TRY(const Value iterable, eval(*n.kids[0]));
  auto items = iterate(iterable, budget_);
  if (!items) return located(items.error());
  if (scopes_.size() >= kMaxScopes) return bad_input("line {}: loops and macros nested too deeply", n.line);
  if (n.kids[1]) {
    Items kept;
    for (const Value& item : *items) {
      scopes_.emplace_back();
      if (auto bound = bind(n.names, item, scopes_.back()); !bound) return located(bound.error());
      DQ_TRY(const Value keep, eval(*n.kids[1]));
      scopes_.pop_back();
      if (truthy(keep)) kept.push_back(item);
    }
    *items = std::move(kept);
  }
  if (items->empty() && n.kids[3]) return body(*n.kids[3], out);
  const auto count = static_cast<int64_t>(items->size());
  for (int64_t i = 0; i < count; ++i) {
    const auto at = [&](int64_t k) -> Value {
      if (k < 0 || k >= count) return Undefined{"loop.previtem or loop.nextitem"};
      return (*items)[static_cast<size_t>(k)];
    };
    Entries fields = {{"index", i + 1},
                      {"index0", i},
                      {"first", i == 0},
                      {"last", i + 1 == count},
                      {"length", count},
                      {"revindex", count - i},
                      {"revindex0", count - i - 1},
                      {"previtem", at(i - 1)},
                      {"nextitem", at(i + 1)}};
    auto info = make_dict(std::move(fields), budget_);
    if (!info) return located(info.error());
    scopes_.push_back({{"loop", *std::move(info)}});
    if (auto bound = bind(n.names, at(i), scopes_.back()); !bound) return located(bound.error());
    DQ_TRY(const Flow flow, body(*n.kids[2], out));
    scopes_.pop_back();
    if (flow == Flow::leave) break;
  }
  return Flow::next;
}

Result<void> Evaluator::set(const Node& n) {
  DQ_TRY(const Value v, eval(*n.kids[0]));
  if (!n.flag) {
    auto bound = bind(n.names, v, scopes_.back());
    if (!bound) return bad_input("line {}: {}", n.line, bound.error().message);
    return {};
  }
  const Value target = look_up(n.names[0]);
  const auto* ns = target.as<std::shared_ptr<Namespace>>();
  if (!ns) return bad_input("line {}: cannot set an attribute of '{}', which is not a namespace", n.line, n.names[0]);
  if (v.as<std::shared_ptr<Namespace>>())
    return bad_input("line {}: a namespace inside a namespace is not supported", n.line);
  (*ns)->attributes[n.names[1]] = v;
  return {};
}

Result<void> Evaluator::set_block(const Node& n) {
  if (scopes_.size() >= kMaxScopes) return bad_input("line {}: blocks nested too deeply", n.line);
  scopes_.emplace_back();
  std::string text;
  DQ_TRY([[maybe_unused]] const Flow flow, body(*n.kids[0], text));
  Value v = std::move(text);
  if (n.kids[1]) {
    scopes_.back()[" block"] = std::move(v);
    DQ_TRY(v, eval(*n.kids[1]));
  }
  scopes_.pop_back();
  scopes_.back()[n.names[0]] = std::move(v);
  return {};
}

Value Evaluator::look_up(const std::string& name) const {
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope)
    if (const auto it = scope->find(name); it != scope->end()) return it->second;
  if (known_builtin(name)) return Function{name};
  return Undefined{name};
}

Result<Value> Evaluator::eval(const Node& n) {
  if (++depth_ > kMaxDepth) return bad_input("line {}: expressions and macros nested too deeply", n.line);
  Result<Value> r = budget_.spend(1) ? eval_kind(n) : Result<Value>(bad_input("the template takes too many steps"));
  --depth_;
  if (!r && r.error().message.rfind("line ", 0) != 0) return bad_input("line {}: {}", n.line, r.error().message);
  return r;
}

Result<Value> Evaluator::eval_kind(const Node& n) {
  switch (n.kind) {
    case Kind::literal: return n.value;
    case Kind::name: return look_up(n.text);
    case Kind::list: {
      Items items;
      for (const auto& kid : n.kids) {
        DQ_TRY(Value v, eval(*kid));
        items.push_back(std::move(v));
      }
      return make_list(std::move(items), budget_);
    }
    case Kind::dict: {
      Entries entries;
      for (size_t i = 0; i + 1 < n.kids.size(); i += 2) {
        DQ_TRY(const Value key, eval(*n.kids[i]));
        DQ_TRY(Value v, eval(*n.kids[i + 1]));
        if (!key.string()) return bad_input("dict keys other than strings are not supported");
        entries.emplace_back(*key.string(), std::move(v));
      }
      return make_dict(std::move(entries), budget_);
    }
    case Kind::attribute: {
      DQ_TRY(const Value object, eval(*n.kids[0]));
      if (object.undefined()) return undefined_error(object);
      const Value* member = object.find(n.text);
      return member ? *member : Value(Undefined{n.text});
    }
    case Kind::index: return eval_index(n);
    case Kind::slice: return eval_slice(n);
    case Kind::call: return eval_call(n);
    case Kind::filter: {
      DQ_TRY(const Value input, eval(*n.kids[0]));
      DQ_TRY(const Arguments args, arguments(n));
      return apply_filter(n.text, input, args, budget_);
    }
    case Kind::test: {
      DQ_TRY(const Value input, eval(*n.kids[0]));
      DQ_TRY(const Arguments args, arguments(n));
      DQ_TRY(const bool holds, apply_test(n.text, input, args, budget_));
      return Value(holds);
    }
    case Kind::unary: {
      DQ_TRY(const Value v, eval(*n.kids[0]));
      if (n.text == "not") return Value(!truthy(v));
      return arithmetic(n.text, Value(int64_t{0}), v, budget_);
    }
    case Kind::chain: return eval_chain(n);
    case Kind::comparison: return eval_comparison(n);
    case Kind::conditional: {
      DQ_TRY(const Value condition, eval(*n.kids[0]));
      if (truthy(condition)) return eval(*n.kids[1]);
      if (n.kids[2]) return eval(*n.kids[2]);
      return Value(Undefined{"the else of an inline if"});
    }
    default: return bad_input("not an expression");
  }
}

Result<Value> Evaluator::eval_chain(const Node& n) {
  DQ_TRY(Value v, eval(*n.kids[0]));
  for (size_t i = 1; i < n.kids.size(); ++i) {
    const std::string& op = n.names[i - 1];
    if (op == "or" || op == "and") {  // the deciding operand is the value, and nothing behind it is looked at
      if (truthy(v) == (op == "or")) return v;
      DQ_TRY(v, eval(*n.kids[i]));
      continue;
    }
    DQ_TRY(const Value right, eval(*n.kids[i]));
    DQ_TRY(v, arithmetic(op, v, right, budget_));
  }
  return v;
}

Result<Value> Evaluator::eval_comparison(const Node& n) {
  DQ_TRY(Value left, eval(*n.kids[0]));
  for (size_t i = 1; i < n.kids.size(); ++i) {
    const std::string& op = n.names[i - 1];
    DQ_TRY(Value right, eval(*n.kids[i]));
    bool holds = false;
    if (op == "in" || op == "not in") {
      DQ_TRY(holds, contains(right, left, budget_));
      if (op == "not in") holds = !holds;
    } else if (op == "==" || op == "!=") {
      DQ_TRY(holds, equal(left, right, budget_));
      if (op == "!=") holds = !holds;
    } else {
      DQ_TRY(const int order, compare(left, right, budget_));
      holds = op == "<" ? order < 0 : op == ">" ? order > 0 : op == "<=" ? order <= 0 : order >= 0;
    }
    if (!holds) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Result<Arguments> Evaluator::arguments(const Node& n) {
  Arguments args;
  for (size_t i = 1; i < n.kids.size(); ++i) {
    DQ_TRY(Value v, eval(*n.kids[i]));
    args.positional.push_back(std::move(v));
  }
  for (const auto& [name, node] : n.named) {
    DQ_TRY(Value v, eval(*node));
    args.named.emplace_back(name, std::move(v));
  }
  return args;
}

Result<Value> Evaluator::eval_call(const Node& n) {
  const Node& callee = *n.kids[0];
  if (callee.kind == Kind::attribute) {
    DQ_TRY(const Value object, eval(*callee.kids[0]));
    if (object.undefined()) return undefined_error(object);
    if (has_method(object, callee.text)) {
      DQ_TRY(const Arguments args, arguments(n));
      return call_method(object, callee.text, args, budget_);
    }
    return bad_input("the method '{}' of a {} is one that this build cannot read", one_line(callee.text, 60),
                     type_name(object));
  }
  DQ_TRY(const Value f, eval(callee));
  if (f.undefined())
    return bad_input("the function '{}' is one that this build cannot read", one_line(f.as<Undefined>()->name, 60));
  const auto* function = f.as<Function>();
  if (!function) return bad_input("a {} cannot be called", type_name(f));
  DQ_TRY(const Arguments args, arguments(n));
  return function->macro ? call_macro(*function->macro, args) : call_builtin(function->name, args, budget_);
}

Result<Value> Evaluator::call_macro(const Node& macro, const Arguments& args) {
  if (args.positional.size() > macro.named.size())
    return bad_input("the macro '{}' takes {} arguments, got {}", macro.text, macro.named.size(),
                     args.positional.size());
  // A macro sees the template's own variables and its arguments, not those of its caller.
  std::vector<std::map<std::string, Value>> caller;
  caller.push_back({});
  std::swap(caller, scopes_);
  std::swap(scopes_[0], caller[0]);
  scopes_.emplace_back();
  Result<Flow> flow = Flow::next;
  std::string text;
  for (size_t i = 0; flow && i < macro.named.size(); ++i) {
    const auto& [name, fallback] = macro.named[i];
    Value v = Undefined{name};
    if (const Value* given = args.get(i, name)) {
      v = *given;
    } else if (fallback) {
      auto r = eval(*fallback);
      if (!r)
        flow = r.error();
      else
        v = *std::move(r);
    }
    scopes_.back()[name] = std::move(v);
  }
  if (flow) flow = body(*macro.kids[0], text);
  std::swap(scopes_[0], caller[0]);
  std::swap(caller, scopes_);
  if (!flow) return flow.error();
  return Value(std::move(text));
}

}  // namespace danqing::jinja
