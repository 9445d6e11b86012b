// Oniguruma's (Ruby) pattern syntax to PCRE2's. Syntax reference: the RE document of Oniguruma, and pcre2pattern(3).
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "base/text.h"
#include "base/try.h"
#include "text/regex.h"

namespace danqing {
namespace {

// White_Space; PCRE2's \s has U+180E besides. The second list is its complement.
constexpr std::string_view kSpace =
    R"(\x09-\x0d\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kNotSpace =
    R"(\x00-\x08\x0e-\x1f\x21-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027})"
    R"(\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{d7ff}\x{e000}-\x{10ffff})";
constexpr std::string_view kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";
constexpr std::string_view kHex = "0-9a-fA-F";

constexpr std::array<std::string_view, 38> kCategories = {
    "any", "c",  "cc", "cf", "cn", "co", "cs", "l",  "ll", "lm", "lo", "lt", "lu", "m",  "mc", "me", "mn", "n",  "nd",
    "nl",  "no", "p",  "pc", "pd", "pe", "pf", "pi", "po", "ps", "s",  "sc", "sk", "sm", "so", "z",  "zl", "zp", "zs"};

struct LongName {
  std::string_view name, pcre2;
};
constexpr std::array<LongName, 16> kLongNames = {{{"letter", "L"},
                                                  {"uppercaseletter", "Lu"},
                                                  {"lowercaseletter", "Ll"},
                                                  {"titlecaseletter", "Lt"},
                                                  {"modifierletter", "Lm"},
                                                  {"otherletter", "Lo"},
                                                  {"mark", "M"},
                                                  {"number", "N"},
                                                  {"decimalnumber", "Nd"},
                                                  {"digit", "Nd"},
                                                  {"punctuation", "P"},
                                                  {"symbol", "S"},
                                                  {"separator", "Z"},
                                                  {"alpha", "Alphabetic"},
                                                  {"space", "White_Space"},
                                                  {"whitespace", "White_Space"}}};

// PCRE2 reads \p{Han} as script *extensions*, Oniguruma as the script itself.
bool is_script(const std::string& name) {
  const std::string p = "\\p{sc:" + name + "}";
  int code = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* c = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(p.data()), p.size(), PCRE2_UTF, &code, &offset, nullptr);
  pcre2_code_free(c);
  return c != nullptr;
}

class Translator {
 public:
  Translator(std::string_view in, const std::string& where) : in_(in), where_(where) {}

  Result<std::string> run() {
    while (i_ < in_.size()) {
      const char c = in_[i_];
      if (c == '\\') {
        DQ_CHECK(escape(false));
      } else if (c == '[') {
        DQ_CHECK(character_class());
      } else if (c == '(') {
        DQ_CHECK(group());
      } else if (c == '{') {
        DQ_CHECK(interval());
      } else {
        out_ += in_[i_++];
      }
    }
    return std::move(out_);
  }

 private:
  Error unsupported(std::string_view what) const {
    return bad_input(
        "[tokenizer] {}: regular expression construct {} is one that this build cannot read (byte {} of '{}')", where_,
        one_line(what), i_, one_line(in_));
  }
  bool at(std::string_view s) const { return in_.substr(i_, s.size()) == s; }

  void set(std::string_view items, bool negated, bool in_class) {
    if (in_class) {
      out_ += items;
    } else {
      (out_ += negated ? "[^" : "[").append(items) += ']';
    }
  }

  Result<void> escape(bool in_class) {
    if (i_ + 1 >= in_.size()) return unsupported("a backslash at the end");
    const char c = in_[i_ + 1];
    i_ += 2;
    switch (c) {
      case 's': set(kSpace, false, in_class); return {};
      case 'S': set(kNotSpace, false, in_class); return {};
      case 'd': out_ += "\\p{Nd}"; return {};
      case 'D': out_ += "\\P{Nd}"; return {};
      case 'h': set(kHex, false, in_class); return {};
      case 'w': set(kWord, false, in_class); return {};
      case 'W':
      case 'H':
        if (in_class) return unsupported(fmt::format("\\{} inside a class", c));
        set(c == 'W' ? kWord : kHex, true, false);
        return {};
      case 'b':
        if (!in_class) return boundary("(?:(?<=[{0}])(?![{0}])|(?<![{0}])(?=[{0}]))");
        out_ += "\\x08";
        return {};
      case 'B': return boundary("(?:(?<=[{0}])(?=[{0}])|(?<![{0}])(?![{0}]))");
      case 'p':
      case 'P': return property(c == 'P');
      case 'u': {
        const std::string_view digits = in_.substr(i_, 4);
        const auto hex = [](char d) { return std::isxdigit(static_cast<unsigned char>(d)) != 0; };
        if (digits.size() < 4 || !std::all_of(digits.begin(), digits.end(), hex))
          return unsupported("\\u without four digits");
        out_ += fmt::format("\\x{{{}}}", digits);
        i_ += 4;
        return {};
      }
      default: {
        (out_ += '\\') += c;
        const size_t end = at("{") ? in_.find('}', i_) : std::string_view::npos;
        if (end == std::string_view::npos || !std::isalpha(static_cast<unsigned char>(c))) return {};
        out_ += in_.substr(i_, end + 1 - i_);  // \x{1F600}
        i_ = end + 1;
        return {};
      }
    }
  }

  /// A word boundary by Oniguruma's idea of a word character.
  Result<void> boundary(std::string_view form) {
    out_ += fmt::format(fmt::runtime(form), kWord);
    return {};
  }

  Result<void> property(bool negated) {
    const size_t end = in_.find('}', i_);
    if (i_ >= in_.size() || in_[i_] != '{' || end == std::string_view::npos) return unsupported("\\p without {name}");
    std::string_view name = in_.substr(i_ + 1, end - i_ - 1);
    if (!name.empty() && name[0] == '^') negated = !negated, name.remove_prefix(1);
    std::string key;
    for (const char c : name)
      if (c != ' ' && c != '_' && c != '-') key += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    std::string translated(name);
    const auto known =
        std::find_if(kLongNames.begin(), kLongNames.end(), [&](const LongName& n) { return n.name == key; });
    if (std::find(kCategories.begin(), kCategories.end(), key) != kCategories.end()) {
      translated = key;
      translated[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(key[0])));
    } else if (known != kLongNames.end()) {
      translated = known->pcre2;
    } else if (is_script(translated)) {
      translated = "sc:" + translated;
    }
    out_ += fmt::format("\\{}{{{}}}", negated ? 'P' : 'p', translated);
    i_ = end + 1;
    return {};
  }

  Result<void> character_class() {
    out_ += in_[i_++];
    if (at("^")) out_ += in_[i_++];
    if (at("]")) out_ += "\\]", ++i_;
    while (i_ < in_.size() && in_[i_] != ']') {
      if (at("[:")) return unsupported("[: :]");
      if (at("[")) return unsupported("a class inside a class");
      if (at("&&")) return unsupported("&&");
      if (at("\\")) {
        DQ_CHECK(escape(true));
      } else {
        out_ += in_[i_++];
      }
    }
    if (i_ >= in_.size()) return unsupported("[ without ]");
    out_ += in_[i_++];
    return {};
  }

  Result<void> group() {
    out_ += in_[i_++];
    if (at("*")) return unsupported("(*");
    if (!at("?")) return {};
    out_ += in_[i_++];
    if (at("#")) {  // a comment must not be translated
      const size_t end = std::min(in_.find(')', i_), in_.size());
      out_ += in_.substr(i_, end - i_);
      i_ = end;
      return {};
    }
    while (i_ < in_.size() && (std::islower(static_cast<unsigned char>(in_[i_])) || in_[i_] == '-')) {
      const char flag = in_[i_];
      if (flag != 'i' && flag != 'm' && flag != 'x' && flag != '-') return unsupported(fmt::format("(?{}", flag));
      out_ += flag == 'm' ? 's' : flag;  // Ruby's (?m) lets the dot match line breaks
      ++i_;
    }
    return {};
  }

  Result<void> interval() {
    const size_t end = in_.find('}', i_);
    const std::string_view body = in_.substr(i_ + 1, end == std::string_view::npos ? 0 : end - i_ - 1);
    const bool numbers = !body.empty() && std::all_of(body.begin(), body.end(), [](char c) {
      return std::isdigit(static_cast<unsigned char>(c)) || c == ',';
    });
    if (!numbers || body == ",") {
      out_ += "\\{";
      ++i_;
      return {};
    }
    const char after = end + 1 < in_.size() ? in_[end + 1] : '\0';
    if (after == '+') return unsupported("{n,m}+");
    if (after == '?' && body.find(',') == std::string_view::npos) return unsupported("{n}?");
    out_ += body[0] == ',' ? "{0" : "{";
    (out_ += body) += '}';
    i_ = end + 1;
    return {};
  }

  std::string_view in_;
  const std::string& where_;
  std::string out_;
  size_t i_ = 0;
};

}  // namespace

Result<std::string> regex_from_oniguruma(std::string_view pattern, const std::string& where) {
  return Translator(pattern, where).run();
}

}  // namespace danqing
