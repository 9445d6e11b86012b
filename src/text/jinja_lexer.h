// Cuts a template into text and the tokens inside its tags, with Jinja's white space rules.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "danqing/result.h"

namespace danqing::jinja {

enum class TokenKind { text, output_begin, output_end, block_begin, block_end, name, string, integer, number, op, end };

struct Token {
  TokenKind kind;
  std::string text;  // of text and strings: the content, escapes resolved
  int line;
};

/// Comments are gone, white space control ("-", "+", trim_blocks and lstrip_blocks as transformers sets them) is done.
/// Ends with a token `end`. Error: an unclosed tag or string, a character that no token begins with; with its line.
Result<std::vector<Token>> lex(std::string_view source);

}  // namespace danqing::jinja
