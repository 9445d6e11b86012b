#include "text/regex.h"

#include "testing/testing.h"
#include "text/normalizer.h"
#include "text/utf8.h"

namespace danqing {
namespace {

// All matches of `pattern` in `text`, with bars between them.
std::string matches(const std::string& pattern, const std::string& text) {
  auto regex = Regex::compile(pattern, false, "test");
  if (!regex) return regex.error().message;
  Regex::Matcher matcher(**regex, text.size());
  std::string out;
  for (size_t from = 0; from <= text.size();) {
    Span m;
    auto found = matcher.find(text, from, m);
    if (!found) return found.error().message;
    if (!*found) break;
    out += (out.empty() ? "" : "|") + text.substr(m.begin, m.size());
    from = m.size() > 0 ? m.end : m.end + 1;
  }
  return out;
}

TEST(Regex, MeansWhatOnigurumaMeans) {
  struct Case {
    const char *pattern, *text, *expected;
  };
  // Expected: the tokenizers library (Oniguruma) splitting the same text.
  const Case cases[] = {
      {R"(\s+)", "a \t\u3000b\u180ec\u0085d", " \t\u3000|\u0085"},  // U+180E is no white space any more
      {R"([^\s]+)", "a\u180eb c", "a\u180eb|c"},
      {R"([^\S\n]+)", "a \n\tb", " |\t"},
      {R"(\w+)", "aé猫\u0301½²٣Ⅷ_-ⓐ", "aé猫\u0301½²٣Ⅷ_|ⓐ"},
      {R"(\p{Han}+)", "漢、字", "漢|字"},  // the script, not its extensions, which contain the comma
      {R"(\p{Letter}\p{^L})", "a1b", "a1"},
      {R"(\h+)", "xFFg9", "FF|9"},
      {R"(^.$)", "ab\nc\nde", "c"},
      {R"((?m).+)", "a\nb", "a\nb"},
      {R"(a{,2}b)", "aaab", "aab"},
      {R"(\u0061\x{62})", "ab", "ab"},
      {R"((?i:'s|K))", "'\u017f k \u212a", "'\u017f|k|\u212a"},
      {R"(\s+(?!\S)|x(?#\s comment)y)", "  a xy", " |xy"},
      {R"(\bcat\b)", "cat cats cat\u0301", "cat"},
  };
  for (const Case& c : cases) EXPECT_EQ(matches(c.pattern, c.text), c.expected) << c.pattern;
}

TEST(Regex, RefusesWhatItCannotTranslate) {
  for (const char* pattern : {"[a[b]]", "[a&&b]", "[[:alpha:]]", "a{2}+", "a{2}?", "(*LIMIT_MATCH=1)a", "[\\W]",
                              "\\u12", "[a", "\\p{", "(?s)a", "\\", "(", "a**", "(?<=a+)b", "\\p{NoSuchThing}"}) {
    const auto r = Regex::compile(pattern, false, "here");
    ASSERT_FALSE(r.ok()) << pattern;
    EXPECT_NE(r.error().message.find("here"), std::string::npos);
  }
}

TEST(Regex, LiteralTextIsNotAPattern) {
  auto r = Regex::compile("a.b", true, "test");
  ASSERT_TRUE(r.ok());
  Regex::Matcher m(**r, 10);
  Span s;
  EXPECT_FALSE(*m.find("axb", 0, s));
  EXPECT_TRUE(*m.find("xa.b", 0, s));
  EXPECT_EQ(s.begin, 1u);
}

TEST(Normalizer, ComposesAsTheReference) {
  struct Case {
    const char *text, *expected;
  };
  const Case cases[] = {{"plain", "plain"},
                        {"e\u0301 A\u030a \u212b", "é Å Å"},
                        {"\u1112\u1161\u11ab", "한"},
                        {"\ub00c\u11a7\u11a8", "\ub00c\u11a7\u11a8"},  // U+11A7 composes with nothing
                        {"q\u0307\u0323", "q\u0323\u0307"},            // marks in the order of their classes
                        {"a\u0307\u0323", "\u1ea1\u0307"},
                        {"\u0958", "\u0915\u093c"},         // excluded from composition
                        {"\u0331\u0eba", "\u0331\u0eba"}};  // newer than the reference's tables
  for (const Case& c : cases) {
    DQ_ASSERT_OK(const std::string got, to_nfc(c.text));
    EXPECT_EQ(got, c.expected);
  }
}

TEST(Utf8, WhiteSpaceAndWords) {
  EXPECT_EQ(utf8::leading_space(" \u3000a "), 4u);
  EXPECT_EQ(utf8::trailing_space(" a\u00a0\n"), 3u);
  EXPECT_EQ(utf8::trailing_space("  "), 2u);
  EXPECT_TRUE(utf8::starts_with_word("猫 "));
  EXPECT_FALSE(utf8::starts_with_word("½"));
  EXPECT_TRUE(utf8::ends_with_word("-\u0301"));
  EXPECT_FALSE(utf8::ends_with_word(""));
}

}  // namespace
}  // namespace danqing
