// The parsed template: one node type, with the children each kind has written beside it.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja_value.h"

namespace danqing::jinja {

enum class Kind {
  // Expressions
  literal,      // value
  name,         // text
  list,         // kids
  dict,         // kids: key, value, key, value, ...
  attribute,    // kids: object; text
  index,        // kids: object, index
  slice,        // kids: object, start, stop, step (each may be null)
  call,         // kids: callee, positional ...; named
  filter,       // kids: input, positional ...; named; text
  test,         // kids: input, positional ...; text
  unary,        // kids: operand; text: "-", "+", "not"
  chain,        // kids: a, b, c ..., from the left; names: the operators between them, + - * / // % ** ~ and or
  comparison,   // kids: a, b, c ...; names: the operators between them
  conditional,  // kids: condition, then, otherwise (may be null)
  // Statements
  text_out,   // text
  output,     // kids: expression
  branches,   // kids: condition, body, condition, body, ..., and perhaps a last body
  loop,       // kids: iterable, filter (may be null), body, else body (may be null); names: targets
  set,        // kids: value; names: targets; or text "object.attribute" in names[0], names[1] with `flag`
  set_block,  // kids: body, then filters' expression or null; names[0]: target
  macro,      // kids: body; named: parameters and defaults (may be null); text: name
  body,       // kids: statements
  break_loop,
  continue_loop,
};

struct Node {
  Kind kind;
  int line = 0;
  std::string text;
  Value value;
  bool flag = false;
  std::vector<std::unique_ptr<Node>> kids;
  std::vector<std::pair<std::string, std::unique_ptr<Node>>> named;
  std::vector<std::string> names;
};

/// Error: "line N: ..." naming the construct that cannot be read.
Result<std::unique_ptr<Node>> parse(std::string_view source);

bool known_filter(std::string_view name);
bool known_test(std::string_view name);

}  // namespace danqing::jinja
