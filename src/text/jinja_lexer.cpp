#include "text/jinja_lexer.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "base/text.h"
#include "base/try.h"
#include "text/utf8.h"

namespace danqing::jinja {
namespace {

bool blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool digit(char c) { return c >= '0' && c <= '9'; }
bool name_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

constexpr std::array<std::string_view, 24> kOperators = {"**", "//", "==", "!=", ">=", "<=", "+", "-",
                                                         "*",  "/",  "%",  "~",  "[",  "]",  "(", ")",
                                                         "{",  "}",  ">",  "<",  "=",  ".",  ":", "|"};

// Line breaks as \n; one at the very end does not count.
std::string normalized(std::string_view in) {
  std::string out;
  for (size_t i = 0; i < in.size(); ++i) {
    if (in[i] == '\r') {
      if (i + 1 < in.size() && in[i + 1] == '\n') continue;
      out += '\n';
    } else {
      out += in[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalized(source)), s_(source_) {}

  Result<std::vector<Token>> run() {
    while (i_ < s_.size()) DQ_CHECK(text_and_tag());
    push(TokenKind::end, "");
    return std::move(out_);
  }

 private:
  Error error(std::string_view what) const { return bad_input("line {}: {}", line_, what); }
  bool at(std::string_view t) const { return s_.substr(i_, t.size()) == t; }
  void push(TokenKind kind, std::string text) { out_.push_back({kind, std::move(text), line_}); }
  void advance(size_t n) {
    line_ += static_cast<int>(std::count(s_.begin() + static_cast<std::ptrdiff_t>(i_),
                                         s_.begin() + static_cast<std::ptrdiff_t>(i_ + n), '\n'));
    i_ += n;
  }

  Result<void> text_and_tag() {
    size_t tag = i_;
    for (; tag < s_.size(); ++tag)
      if (s_[tag] == '{' && tag + 1 < s_.size() && (s_[tag + 1] == '{' || s_[tag + 1] == '%' || s_[tag + 1] == '#'))
        break;
    std::string_view text = s_.substr(i_, tag - i_);
    if (tag >= s_.size()) {
      if (!text.empty()) push(TokenKind::text, std::string(text));
      advance(s_.size() - i_);
      return {};
    }
    const char kind = s_[tag + 1], sign = tag + 2 < s_.size() ? s_[tag + 2] : ' ';
    if (sign == '-') {
      while (!text.empty() && blank(text.back())) text.remove_suffix(1);
    } else if (sign != '+' && kind != '{') {  // lstrip_blocks
      const size_t newline = text.rfind('\n');
      const size_t begin = newline == std::string_view::npos ? 0 : newline + 1;
      if ((begin > 0 || line_starting_) &&
          std::all_of(text.begin() + static_cast<std::ptrdiff_t>(begin), text.end(), blank))
        text = text.substr(0, begin);
    }
    if (!text.empty()) push(TokenKind::text, std::string(text));
    advance(tag - i_);
    const size_t skip = 2 + (sign == '-' || (sign == '+' && kind != '#') ? 1 : 0);
    if (kind == '#') return comment();
    push(kind == '{' ? TokenKind::output_begin : TokenKind::block_begin, "");
    advance(skip);
    return kind == '{' ? tokens("}}", TokenKind::output_end) : tokens("%}", TokenKind::block_end);
  }

  Result<void> comment() {
    const size_t end = s_.find("#}", i_ + 2);
    if (end == std::string_view::npos) return error("a comment is not closed");
    const char sign = end > i_ + 2 ? s_[end - 1] : ' ';
    advance(end + 2 - i_);
    after_tag(sign, true);
    return {};
  }

  // White space behind a tag; `block`: one line break goes too (trim_blocks).
  void after_tag(char sign, bool block) {
    line_starting_ = false;
    size_t n = 0;
    if (sign == '-') {
      while (i_ + n < s_.size() && blank(s_[i_ + n])) ++n;
    } else if (block && sign != '+' && at("\n")) {
      n = 1;
    }
    line_starting_ = n > 0 && s_[i_ + n - 1] == '\n';
    advance(n);
  }

  Result<void> tokens(std::string_view closing, TokenKind kind) {
    std::string open;  // brackets: inside them "}}" is two braces
    while (i_ < s_.size()) {
      if (blank(s_[i_])) {
        advance(1);
        continue;
      }
      if (open.empty()) {
        const bool sign = s_[i_] == '-' || (s_[i_] == '+' && kind == TokenKind::block_end);
        if (s_.substr(i_ + (sign ? 1 : 0), 2) == closing) {
          push(kind, "");
          const char c = sign ? s_[i_] : ' ';
          advance(sign ? 3 : 2);
          after_tag(c, kind == TokenKind::block_end);
          return {};
        }
      }
      DQ_CHECK(token(open));
    }
    return error("a tag is not closed");
  }

  Result<void> token(std::string& open) {
    const char c = s_[i_];
    if (c == '"' || c == '\'') return string(c);
    if (digit(c)) return number();
    if (name_char(c)) {
      size_t n = 1;
      while (i_ + n < s_.size() && name_char(s_[i_ + n])) ++n;
      push(TokenKind::name, std::string(s_.substr(i_, n)));
      advance(n);
      return {};
    }
    if (c == ',') {
      push(TokenKind::op, ",");
      advance(1);
      return {};
    }
    const auto* op = std::find_if(kOperators.begin(), kOperators.end(), [&](std::string_view o) { return at(o); });
    if (op == kOperators.end()) return error(fmt::format("unexpected character '{}'", one_line(s_.substr(i_, 1))));
    if (*op == "(" || *op == "[" || *op == "{") open += *op;
    if (*op == ")" || *op == "]" || *op == "}") {
      const char expected = *op == ")" ? '(' : *op == "]" ? '[' : '{';
      if (open.empty() || open.back() != expected) return error(fmt::format("unexpected '{}'", *op));
      open.pop_back();
    }
    push(TokenKind::op, std::string(*op));
    advance(op->size());
    return {};
  }

  Result<void> number() {
    size_t n = 0;
    const auto digits = [&] {
      while (i_ + n < s_.size() && (digit(s_[i_ + n]) || s_[i_ + n] == '_')) ++n;
    };
    const auto peek = [&](size_t k) { return i_ + n + k < s_.size() ? s_[i_ + n + k] : ' '; };
    digits();
    bool real = false;
    if (peek(0) == '.' && digit(peek(1))) {
      real = true;
      ++n;
      digits();
    }
    const size_t sign = peek(1) == '+' || peek(1) == '-' ? 1 : 0;
    if ((peek(0) == 'e' || peek(0) == 'E') && digit(peek(1 + sign))) {
      real = true;
      n += 1 + sign;
      digits();
    }
    std::string text(s_.substr(i_, n));
    text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
    push(real ? TokenKind::number : TokenKind::integer, std::move(text));
    advance(n);
    return {};
  }

  Result<void> string(char quote) {
    std::string out;
    size_t i = i_ + 1;
    for (; i < s_.size() && s_[i] != quote; ++i) {
      if (s_[i] != '\\' || i + 1 >= s_.size()) {
        out += s_[i];
        continue;
      }
      DQ_CHECK(escape(++i, out));
    }
    if (i >= s_.size()) return error("a string is not closed");
    push(TokenKind::string, std::move(out));
    advance(i + 1 - i_);
    return {};
  }

  // The escape whose letter is s_[i]; leaves i on its last character.
  Result<void> escape(size_t& i, std::string& out) const {
    static constexpr std::string_view letters = "ntrfvab\\'\"", values = "\n\t\r\f\v\a\b\\'\"";
    const char c = s_[i];
    if (const size_t known = letters.find(c); known != std::string_view::npos) {
      out += values[known];
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const size_t n = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      char32_t code = 0;
      for (size_t k = 1; k <= n; ++k) {
        const unsigned char d = i + k < s_.size() ? static_cast<unsigned char>(s_[i + k]) : ' ';
        if (!std::isxdigit(d)) return error(fmt::format("\\{} expected {} hexadecimal digits", c, n));
        code = code * 16 + static_cast<char32_t>(std::isdigit(d) ? d - '0' : std::tolower(d) - 'a' + 10);
      }
      if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) code = utf8::kReplacement;
      utf8::append(out, code);
      i += n;
    } else if (digit(c)) {
      return error("octal escapes in strings are not supported");
    } else if (c != '\n') {
      (out += '\\') += c;  // Python keeps what it does not know
    }
    return {};
  }

  std::string source_;
  std::string_view s_;
  size_t i_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> out_;
};

}  // namespace

Result<std::vector<Token>> lex(std::string_view source) { return Lexer(source).run(); }

}  // namespace danqing::jinja
