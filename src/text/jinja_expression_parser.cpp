#include <algorithm>
#include <charconv>

#include "base/text.h"
#include "base/try.h"
#include "text/jinja_parser.h"

namespace danqing::jinja {
namespace {

constexpr int kMaxChain = 40;  // attributes, calls or filters in a row: each is a level of the tree

}  // namespace

Error ExpressionParser::error(std::string_view what) const { return bad_input("line {}: {}", peek().line, what); }

Error ExpressionParser::unexpected(std::string_view expected) const {
  const Token& t = peek();
  const std::string got = t.kind == TokenKind::end          ? "the end of the template"
                          : t.kind == TokenKind::block_end  ? "%}"
                          : t.kind == TokenKind::output_end ? "}}"
                                                            : "'" + one_line(t.text, 40) + "'";
  return error(fmt::format("expected {}, got {}", expected, got));
}

NodePtr ExpressionParser::make(Kind kind, std::string text) const {
  auto n = std::make_unique<Node>();
  n->kind = kind;
  n->line = peek().line;
  n->text = std::move(text);
  return n;
}

Result<void> ExpressionParser::expect_op(std::string_view op) {
  if (!accept_op(op)) return unexpected(fmt::format("'{}'", op));
  return {};
}

Result<std::string> ExpressionParser::identifier() {
  if (peek().kind != TokenKind::name) return unexpected("a name");
  return take().text;
}

Parsed ExpressionParser::expression() {
  const Nesting nesting(depth_);
  if (nesting.too_deep()) return error("expressions nested too deeply");
  DQ_TRY(NodePtr node, disjunction());
  while (at_name("if")) {
    NodePtr c = make(Kind::conditional);
    take();
    DQ_TRY(NodePtr condition, disjunction());
    NodePtr otherwise;
    if (accept_name("else")) {
      DQ_TRY(otherwise, expression());
    }
    c->kids.push_back(std::move(condition));
    c->kids.push_back(std::move(node));
    c->kids.push_back(std::move(otherwise));
    node = std::move(c);
  }
  return node;
}

Parsed ExpressionParser::left_associative(Rule operand, std::initializer_list<std::string_view> operators) {
  NodePtr chain = make(Kind::chain);
  for (;;) {
    DQ_TRY(NodePtr next, (this->*operand)());
    chain->kids.push_back(std::move(next));
    const auto is = [&](std::string_view o) { return at_op(o) || at_name(o); };
    const auto* op = std::find_if(operators.begin(), operators.end(), is);
    if (op == operators.end()) break;
    chain->names.emplace_back(*op);
    take();
  }
  if (chain->names.empty()) return std::move(chain->kids[0]);
  return chain;
}

Parsed ExpressionParser::disjunction() { return left_associative(&ExpressionParser::conjunction, {"or"}); }
Parsed ExpressionParser::conjunction() { return left_associative(&ExpressionParser::negation, {"and"}); }
Parsed ExpressionParser::sum() { return left_associative(&ExpressionParser::concatenation, {"+", "-"}); }
Parsed ExpressionParser::concatenation() { return left_associative(&ExpressionParser::product, {"~"}); }
Parsed ExpressionParser::product() { return left_associative(&ExpressionParser::power, {"*", "//", "/", "%"}); }
Parsed ExpressionParser::power() { return left_associative(&ExpressionParser::unary, {"**"}); }
Parsed ExpressionParser::unary() { return signed_operand(true); }

Parsed ExpressionParser::negation() {
  if (!at_name("not")) return comparison();
  const Nesting nesting(depth_);
  if (nesting.too_deep()) return error("expressions nested too deeply");
  NodePtr n = make(Kind::unary, "not");
  take();
  DQ_TRY(NodePtr operand, negation());
  n->kids.push_back(std::move(operand));
  return n;
}

Parsed ExpressionParser::comparison() {
  static constexpr std::string_view operators[] = {"==", "!=", "<=", ">=", "<", ">"};
  NodePtr c = make(Kind::comparison);
  DQ_TRY(NodePtr first, sum());
  c->kids.push_back(std::move(first));
  for (;;) {
    std::string op;
    if (at_name("in")) op = "in";
    if (at_name("not") && peek(1).kind == TokenKind::name && peek(1).text == "in") op = "not in";
    for (const std::string_view o : operators)
      if (at_op(o)) op = o;
    if (op.empty()) break;
    take();
    if (op == "not in") take();
    c->names.push_back(op);
    DQ_TRY(NodePtr next, sum());
    c->kids.push_back(std::move(next));
  }
  if (c->names.empty()) return std::move(c->kids[0]);
  return c;
}

Parsed ExpressionParser::signed_operand(bool with_filters) {
  const Nesting nesting(depth_);
  if (nesting.too_deep()) return error("expressions nested too deeply");
  NodePtr node;
  if (at_op("-") || at_op("+")) {
    node = make(Kind::unary, peek().text);
    take();
    DQ_TRY(NodePtr operand, signed_operand(false));
    node->kids.push_back(std::move(operand));
  } else {
    DQ_TRY(node, primary());
  }
  DQ_TRY(node, postfix(std::move(node)));
  if (with_filters) return filters(std::move(node));
  return node;
}

Parsed ExpressionParser::primary() {
  NodePtr n = make(Kind::literal);
  const Token& t = peek();
  switch (t.kind) {
    case TokenKind::name: {
      const std::string& s = t.text;
      if (s == "true" || s == "True")
        n->value = true;
      else if (s == "false" || s == "False")
        n->value = false;
      else if (s == "none" || s == "None")
        n->value = None{};
      else
        n = make(Kind::name, s);
      take();
      return n;
    }
    case TokenKind::string: {
      std::string s;
      while (peek().kind == TokenKind::string) s += take().text;
      n->value = std::move(s);
      return n;
    }
    case TokenKind::integer: {
      int64_t v = 0;
      const auto [end, code] = std::from_chars(t.text.data(), t.text.data() + t.text.size(), v);
      if (code != std::errc()) return error("an integer that does not fit into 64 bits");
      n->value = v;
      take();
      return n;
    }
    case TokenKind::number: {
      double v = 0;
      const auto [end, code] = std::from_chars(t.text.data(), t.text.data() + t.text.size(), v);
      if (code != std::errc()) return error("a number out of range");
      n->value = v;
      take();
      return n;
    }
    default: return bracketed();
  }
}

Parsed ExpressionParser::bracketed() {
  if (at_op("{")) {
    NodePtr n = make(Kind::dict);
    take();
    while (!at_op("}")) {
      DQ_TRY(NodePtr key, expression());
      DQ_CHECK(expect_op(":"));
      DQ_TRY(NodePtr value, expression());
      n->kids.push_back(std::move(key));
      n->kids.push_back(std::move(value));
      if (!accept_op(",")) break;
    }
    DQ_CHECK(expect_op("}"));
    return n;
  }
  if (!at_op("[") && !at_op("(")) return unexpected("an expression");
  const bool round = at_op("(");
  const char* close = round ? ")" : "]";
  NodePtr n = make(Kind::list);  // tuples are lists here
  take();
  bool comma = false;
  while (!at_op(close)) {
    DQ_TRY(NodePtr item, expression());
    n->kids.push_back(std::move(item));
    if (!accept_op(",")) break;
    comma = true;
  }
  DQ_CHECK(expect_op(close));
  if (round && !comma && n->kids.size() == 1) return std::move(n->kids[0]);
  return n;
}

Parsed ExpressionParser::postfix(NodePtr node) {
  for (int length = 0; length < kMaxChain; ++length) {
    if (at_op(".")) {
      take();
      NodePtr a = make(Kind::attribute, peek().text);
      if (peek().kind != TokenKind::name) return unexpected("an attribute's name");
      take();
      a->kids.push_back(std::move(node));
      node = std::move(a);
    } else if (at_op("[")) {
      DQ_TRY(node, subscript(std::move(node)));
    } else if (at_op("(")) {
      NodePtr c = make(Kind::call);
      c->kids.push_back(std::move(node));
      DQ_CHECK(arguments(*c));
      node = std::move(c);
    } else {
      return node;
    }
  }
  return error("too many attributes and calls in a row");
}

Parsed ExpressionParser::subscript(NodePtr object) {
  NodePtr n = make(Kind::index);
  take();
  n->kids.push_back(std::move(object));
  bool colon = false;
  NodePtr part;
  for (;;) {
    if (accept_op(":")) {
      colon = true;
      n->kids.push_back(std::move(part));
    } else if (at_op("]")) {
      break;
    } else if (part || n->kids.size() > 3) {
      return unexpected("']'");
    } else {
      DQ_TRY(part, expression());
    }
  }
  if (!colon && !part) return unexpected("an index");
  take();
  n->kids.push_back(std::move(part));
  if (colon) {
    if (n->kids.size() > 4) return error("expected a slice of at most three parts");
    n->kind = Kind::slice;
    n->kids.resize(4);
  }
  return n;
}

Result<void> ExpressionParser::arguments(Node& call) {
  take();
  while (!at_op(")")) {
    if (at_op("*") || at_op("**")) return error("'*' in a call is not supported");
    if (peek().kind == TokenKind::name && peek(1).kind == TokenKind::op && peek(1).text == "=") {
      std::string name = take().text;
      take();
      DQ_TRY(NodePtr value, expression());
      call.named.emplace_back(std::move(name), std::move(value));
    } else {
      if (!call.named.empty()) return error("a positional argument after a named one");
      DQ_TRY(NodePtr value, expression());
      call.kids.push_back(std::move(value));
    }
    if (!accept_op(",")) break;
  }
  return expect_op(")");
}

Parsed ExpressionParser::filters(NodePtr node) {
  for (int length = 0; length < kMaxChain; ++length) {
    if (accept_op("|")) {
      NodePtr f = make(Kind::filter);
      DQ_TRY(f->text, identifier());
      if (!known_filter(f->text))
        return error(fmt::format("the filter '{}' is one that this build cannot read", one_line(f->text, 60)));
      f->kids.push_back(std::move(node));
      if (at_op("(")) DQ_CHECK(arguments(*f));
      node = std::move(f);
    } else if (at_name("is")) {
      DQ_TRY(node, test(std::move(node)));
    } else if (at_op("(") && node->kind == Kind::filter) {
      NodePtr c = make(Kind::call);
      c->kids.push_back(std::move(node));
      DQ_CHECK(arguments(*c));
      node = std::move(c);
    } else {
      return node;
    }
  }
  return error("too many filters in a row");
}

Parsed ExpressionParser::test(NodePtr input) {
  take();
  const bool negated = accept_name("not");
  NodePtr t = make(Kind::test);
  DQ_TRY(t->text, identifier());
  if (!known_test(t->text))
    return error(fmt::format("the test '{}' is one that this build cannot read", one_line(t->text, 60)));
  t->kids.push_back(std::move(input));
  const TokenKind kind = peek().kind;
  const bool operand = kind == TokenKind::string || kind == TokenKind::integer || kind == TokenKind::number ||
                       at_op("[") || at_op("{") ||
                       (kind == TokenKind::name && !at_name("else") && !at_name("or") && !at_name("and") &&
                        !at_name("if") && !at_name("in") && !at_name("not") && !at_name("is"));
  if (at_op("(")) {
    DQ_CHECK(arguments(*t));
  } else if (operand) {
    DQ_TRY(NodePtr argument, primary());
    DQ_TRY(argument, postfix(std::move(argument)));
    t->kids.push_back(std::move(argument));
  }
  if (!negated) return t;
  NodePtr n = make(Kind::unary, "not");
  n->kids.push_back(std::move(t));
  return n;
}

}  // namespace danqing::jinja
