#include "base/text.h"

#include <gtest/gtest.h>

namespace danqing {
namespace {

TEST(OneLine, PlainTextStays) {
  EXPECT_EQ(one_line(""), "");
  EXPECT_EQ(one_line("layers.0.weight"), "layers.0.weight");
  EXPECT_EQ(one_line("一只狗 🐕"), "一只狗 🐕");
}

TEST(OneLine, ControlAndInvalidBytesAreEscaped) {
  EXPECT_EQ(one_line("a\nb\r\t\x1b[31m"), "a\\x0ab\\x0d\\x09\\x1b[31m");
  EXPECT_EQ(one_line(std::string_view("\0\x7f", 2)), "\\x00\\x7f");
  EXPECT_EQ(one_line("\xff"), "\\xff");
  EXPECT_EQ(one_line("\xe4\xb8"), "\\xe4\\xb8");  // cut
  EXPECT_EQ(one_line("\xc0\x80"), "\\xc0\\x80");  // overlong
  EXPECT_EQ(one_line("\xe0\x80\x80"), "\\xe0\\x80\\x80");
  EXPECT_EQ(one_line("\xed\xa0\x80"), "\\xed\\xa0\\x80");           // a surrogate
  EXPECT_EQ(one_line("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");  // above U+10FFFF
  EXPECT_EQ(one_line("\xf4\x8f\xbf\xbf"), "\xf4\x8f\xbf\xbf");
}

TEST(OneLine, CutBetweenCharacters) {
  EXPECT_EQ(one_line("abcdef", 3), "abc...");
  EXPECT_EQ(one_line("狗狗狗", 4), "狗狗...");
  EXPECT_EQ(one_line("abc", 3), "abc");
  EXPECT_LE(one_line(std::string(1 << 20, '\n'), 100).size(), 110u);
}

TEST(ValidUtf8Prefix, Length) {
  EXPECT_EQ(valid_utf8_prefix(""), 0u);
  EXPECT_EQ(valid_utf8_prefix("ab\n狗"), 6u);
  EXPECT_EQ(valid_utf8_prefix("ab\xff狗"), 2u);
  EXPECT_EQ(valid_utf8_prefix("狗\xe7\x8b"), 3u);
}

}  // namespace
}  // namespace danqing
