// The two halves of the template parser: expressions, and the statements that contain them.
#pragma once
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja_ast.h"
#include "text/jinja_lexer.h"

namespace danqing::jinja {

using NodePtr = std::unique_ptr<Node>;
using Parsed = Result<NodePtr>;

/// A cursor over the tokens and Jinja's expression grammar, from the loosest binding rule to the tightest.
class ExpressionParser {
 public:
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}
  Parsed expression();

 protected:
  const Token& peek(size_t ahead = 0) const { return tokens_[std::min(i_ + ahead, tokens_.size() - 1)]; }
  const Token& take() { return tokens_[i_ + 1 < tokens_.size() ? i_++ : i_]; }
  bool at_op(std::string_view op) const { return peek().kind == TokenKind::op && peek().text == op; }
  bool at_name(std::string_view name) const { return peek().kind == TokenKind::name && peek().text == name; }
  bool accept_op(std::string_view op) { return at_op(op) && (take(), true); }
  bool accept_name(std::string_view name) { return at_name(name) && (take(), true); }
  Result<void> expect_op(std::string_view op);
  Result<std::string> identifier();
  Error error(std::string_view what) const;
  Error unexpected(std::string_view expected) const;
  NodePtr make(Kind kind, std::string text = "") const;
  Parsed disjunction();
  Parsed filters(NodePtr input);

  /// Counts nesting: hostile templates must not exhaust the stack.
  struct Nesting {
    int& depth;
    explicit Nesting(int& d) : depth(d) { ++depth; }
    ~Nesting() { --depth; }
    bool too_deep() const { return depth > 80; }
  };
  int depth_ = 0;

 private:
  using Rule = Parsed (ExpressionParser::*)();
  Parsed left_associative(Rule operand, std::initializer_list<std::string_view> operators);
  Parsed conjunction();
  Parsed negation();
  Parsed comparison();
  Parsed sum();
  Parsed concatenation();
  Parsed product();
  Parsed power();
  Parsed unary();
  Parsed signed_operand(bool with_filters);
  Parsed primary();
  Parsed bracketed();
  Parsed postfix(NodePtr node);
  Parsed subscript(NodePtr object);
  Parsed test(NodePtr input);
  Result<void> arguments(Node& call);

  std::vector<Token> tokens_;
  size_t i_ = 0;
};

}  // namespace danqing::jinja
