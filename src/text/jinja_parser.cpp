#include "text/jinja_parser.h"

#include <algorithm>

#include "base/text.h"
#include "base/try.h"

namespace danqing::jinja {
namespace {

class StatementParser : public ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  Parsed whole() {
    DQ_TRY(NodePtr b, body({}));
    if (peek().kind != TokenKind::end) return unexpected("the end of the template");
    return b;
  }

 private:
  /// Statements up to a block tag whose name is in `until`; stands behind "{%" then.
  Parsed body(std::initializer_list<std::string_view> until) {
    const Nesting nesting(depth_);
    if (nesting.too_deep()) return error("statements nested too deeply");
    NodePtr b = make(Kind::body);
    for (;;) {
      switch (peek().kind) {
        case TokenKind::text:
          b->kids.push_back(make(Kind::text_out, peek().text));
          take();
          break;
        case TokenKind::output_begin: {
          take();
          NodePtr o = make(Kind::output);
          DQ_TRY(NodePtr e, expression());
          if (peek().kind != TokenKind::output_end) return unexpected("}}");
          take();
          o->kids.push_back(std::move(e));
          b->kids.push_back(std::move(o));
          break;
        }
        case TokenKind::block_begin: {
          const Token& name = peek(1);
          take();
          if (name.kind == TokenKind::name && std::find(until.begin(), until.end(), name.text) != until.end()) return b;
          DQ_TRY(NodePtr s, statement());
          b->kids.push_back(std::move(s));
          break;
        }
        default:
          if (until.size() > 0) return error(fmt::format("expected {{% {} %}}", *(until.end() - 1)));
          return b;
      }
    }
  }

  Result<void> block_end() {
    if (peek().kind != TokenKind::block_end) return unexpected("%}");
    take();
    return {};
  }
  /// "name %}", standing behind "{%".
  Result<void> closing(std::string_view name) {
    if (!accept_name(name)) return unexpected(name);
    return block_end();
  }

  Parsed statement() {
    if (at_name("if")) return if_statement();
    if (at_name("for")) return for_statement();
    if (at_name("set")) return set_statement();
    if (at_name("macro")) return macro_statement();
    if (at_name("generation")) {  // transformers' mark around what the assistant says; changes nothing in the text
      take();
      DQ_CHECK(block_end());
      DQ_TRY(NodePtr b, body({"endgeneration"}));
      DQ_CHECK(closing("endgeneration"));
      return b;
    }
    if (at_name("break") || at_name("continue")) {
      if (loops_ == 0) return error(fmt::format("'{}' outside a loop", peek().text));
      NodePtr n = make(at_name("break") ? Kind::break_loop : Kind::continue_loop);
      take();
      DQ_CHECK(block_end());
      return n;
    }
    if (peek().kind != TokenKind::name) return unexpected("a statement");
    return error(fmt::format("the statement '{}' is one that this build cannot read", one_line(peek().text, 60)));
  }

  Parsed if_statement() {
    NodePtr n = make(Kind::branches);
    while (accept_name("if") || accept_name("elif")) {
      DQ_TRY(NodePtr condition, expression());
      DQ_CHECK(block_end());
      DQ_TRY(NodePtr then, body({"elif", "else", "endif"}));
      n->kids.push_back(std::move(condition));
      n->kids.push_back(std::move(then));
    }
    if (accept_name("else")) {
      DQ_CHECK(block_end());
      DQ_TRY(NodePtr otherwise, body({"endif"}));
      n->kids.push_back(std::move(otherwise));
    }
    DQ_CHECK(closing("endif"));
    return n;
  }

  Result<std::vector<std::string>> targets() {
    std::vector<std::string> names;
    const bool round = accept_op("(");
    do {
      DQ_TRY(std::string name, identifier());
      names.push_back(std::move(name));
    } while (accept_op(",") && names.size() < 16);
    if (round) DQ_CHECK(expect_op(")"));
    return names;
  }

  Parsed for_statement() {
    NodePtr n = make(Kind::loop);
    take();
    DQ_TRY(n->names, targets());
    if (!accept_name("in")) return unexpected("'in'");
    DQ_TRY(NodePtr iterable, disjunction());  // an "if" behind it belongs to the loop
    NodePtr filter, otherwise;
    if (accept_name("if")) {
      DQ_TRY(filter, expression());
    }
    if (at_name("recursive")) return error("'recursive' loops are ones that this build cannot read");
    DQ_CHECK(block_end());
    ++loops_;
    DQ_TRY(NodePtr inner, body({"else", "endfor"}));
    --loops_;
    if (accept_name("else")) {
      DQ_CHECK(block_end());
      DQ_TRY(otherwise, body({"endfor"}));
    }
    DQ_CHECK(closing("endfor"));
    for (NodePtr* part : {&iterable, &filter, &inner, &otherwise}) n->kids.push_back(std::move(*part));
    return n;
  }

  Parsed set_statement() {
    NodePtr n = make(Kind::set);
    take();
    DQ_TRY(n->names, targets());
    if (n->names.size() == 1 && accept_op(".")) {
      n->flag = true;
      DQ_TRY(std::string attribute, identifier());
      n->names.push_back(std::move(attribute));
    }
    if (accept_op("=")) {
      DQ_TRY(NodePtr value, expression());
      if (at_op(",")) {  // a tuple without parentheses
        NodePtr tuple = make(Kind::list);
        tuple->kids.push_back(std::move(value));
        while (accept_op(",") && peek().kind != TokenKind::block_end) {
          DQ_TRY(NodePtr next, expression());
          tuple->kids.push_back(std::move(next));
        }
        value = std::move(tuple);
      }
      DQ_CHECK(block_end());
      n->kids.push_back(std::move(value));
      return n;
    }
    if (n->names.size() != 1) return unexpected("'='");
    n->kind = Kind::set_block;
    NodePtr filter;
    if (at_op("|")) {
      DQ_TRY(filter, filters(make(Kind::name, " block")));  // a name that no template can spell
    }
    DQ_CHECK(block_end());
    DQ_TRY(NodePtr content, body({"endset"}));
    DQ_CHECK(closing("endset"));
    n->kids.push_back(std::move(content));
    n->kids.push_back(std::move(filter));
    return n;
  }

  Parsed macro_statement() {
    NodePtr n = make(Kind::macro);
    take();
    DQ_TRY(n->text, identifier());
    DQ_CHECK(expect_op("("));
    while (!at_op(")")) {
      DQ_TRY(std::string name, identifier());
      NodePtr fallback;
      if (accept_op("=")) {
        DQ_TRY(fallback, expression());
      }
      n->named.emplace_back(std::move(name), std::move(fallback));
      if (!accept_op(",")) break;
    }
    DQ_CHECK(expect_op(")"));
    DQ_CHECK(block_end());
    const int loops = std::exchange(loops_, 0);
    DQ_TRY(NodePtr content, body({"endmacro"}));
    loops_ = loops;
    DQ_CHECK(closing("endmacro"));
    n->kids.push_back(std::move(content));
    return n;
  }

  int loops_ = 0;
};

}  // namespace

Parsed parse(std::string_view source) {
  DQ_TRY(std::vector<Token> tokens, lex(source));
  return StatementParser(std::move(tokens)).whole();
}

}  // namespace danqing::jinja
