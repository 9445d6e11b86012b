#include "common/output_name.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "testing/testing.h"

namespace danqing::app {
namespace {

using testing::TempDir;

TEST(Slug, KeepsLettersAndDigitsOfAnyScript) {
  EXPECT_EQ(slug("a red apple"), "a-red-apple");
  EXPECT_EQ(slug("夜空下的一只猫"), "夜空下的一只猫");
  EXPECT_EQ(slug("左边一辆汽车，右边一棵树。"), "左边一辆汽车-右边一棵树");
  EXPECT_EQ(slug("café № 42"), "café-42");
  EXPECT_EQ(slug("Ｗｉｄｅ１２"), "Ｗｉｄｅ１２");
}

TEST(Slug, MakesNoPathAndNoOption) {
  EXPECT_EQ(slug("../../etc/passwd"), "etc-passwd");
  EXPECT_EQ(slug("-o x"), "o-x");
  EXPECT_EQ(slug(std::string("a\0b\nc\x1b[31m", 10)), "a-b-c-31m");
  EXPECT_EQ(slug("..."), "picture");
  EXPECT_EQ(slug(""), "picture");
  EXPECT_EQ(slug("🍎"), "picture");
}

TEST(Slug, DropsInvalidUtf8ByteByByte) {
  EXPECT_EQ(slug("a\xE4/../b"), "a-b");  // the bytes after a broken lead byte are looked at again
  EXPECT_EQ(slug("\xFF\xFE"), "picture");
  EXPECT_EQ(slug("x\xC0\xAFy"), "x-y");  // overlong '/'
  EXPECT_EQ(slug("猫\xE7\x8C"), "猫");
}

TEST(Slug, CutsAtWholeCharacters) {
  EXPECT_EQ(slug(std::string(100, 'a')), std::string(48, 'a'));
  EXPECT_EQ(slug("猫猫猫", 8), "猫猫");
  EXPECT_EQ(slug("ab 猫", 4), "ab");
}

std::string expanded(std::string_view pattern, const OutputFields& f = {42, 3, "a cat"}) {
  auto r = expand_output_name(pattern, f);
  return r ? *r : "error " + std::to_string(static_cast<int>(r.error().code));
}

TEST(ExpandOutputName, Fields) {
  EXPECT_EQ(expanded("x.png"), "x.png");
  EXPECT_EQ(expanded("{prompt}-{seed}.png"), "a-cat-42.png");
  EXPECT_EQ(expanded("{index}/{index:04}.png"), "3/0003.png");
  EXPECT_EQ(expanded("{seed:6}.png"), "000042.png");
  EXPECT_EQ(expanded("{seed}", {~uint64_t{0}, 0, ""}), "18446744073709551615");
}

TEST(ExpandOutputName, WrongPatternsAreUsageErrors) {
  for (const char* pattern : {"{", "}", "{seed", "seed}.png", "{}", "{steps}.png", "{index:}", "{index:x}",
                              "{index:-1}", "{index:4x}", "{index:999}", "{prompt:4}", "{{seed}}.png", "{ seed}"})
    EXPECT_EQ(expanded(pattern), "error 2") << pattern;
}

TEST(PatternFor, TellsPicturesApart) {
  EXPECT_EQ(pattern_for("x.png", 1), "x.png");
  EXPECT_EQ(pattern_for("x.png", 2), "x-{index}.png");
  EXPECT_EQ(pattern_for("x-{seed}.png", 2), "x-{seed}.png");
  EXPECT_EQ(pattern_for("{index:03}.png", 2), "{index:03}.png");
  EXPECT_EQ(pattern_for("{prompt}.png", 2), "{prompt}-{index}.png");
  EXPECT_EQ(pattern_for("v1.2/x", 2), "v1.2/x-{index}");
  EXPECT_EQ(pattern_for("v1.2/x.webp", 2), "v1.2/x-{index}.webp");
}

TEST(FreeName, NeverAnExistingOne) {
  TempDir dir;
  EXPECT_EQ(free_name(dir / "x.png"), dir / "x.png");
  std::ofstream(dir / "x.png") << "1";
  EXPECT_EQ(free_name(dir / "x.png"), dir / "x-2.png");
  std::ofstream(dir / "x-2.png") << "2";
  EXPECT_EQ(free_name(dir / "x.png"), dir / "x-3.png");
  std::filesystem::create_symlink("nowhere", dir / "link.png");  // writing there would create the target
  EXPECT_EQ(free_name(dir / "link.png"), dir / "link-2.png");
}

TEST(CheckOutputPattern, OnlyNamesOfPictureFiles) {
  TempDir dir;
  std::filesystem::create_directory(dir / "folder.png");
  EXPECT_TRUE(check_output_pattern((dir / "not/there/{prompt}.png").string()).ok());
  EXPECT_FALSE(std::filesystem::exists(dir / "not"));
  for (const std::string& name : {std::string("x"), std::string("x.bmp"), std::string(""), std::string("png"),
                                  (dir / "folder.png").string(), dir.path().string() + "/"}) {
    const auto r = check_output_pattern(name);
    ASSERT_FALSE(r.ok()) << name;
    EXPECT_EQ(r.error().code, ErrorCode::usage) << name;
  }
}

TEST(MakeOutputDirectory, MakesWhatHasNoFieldInItsName) {
  TempDir dir;
  ASSERT_TRUE(make_output_directory((dir / "a/b/{prompt}/{seed}.png").string()).ok());
  EXPECT_TRUE(std::filesystem::is_directory(dir / "a/b"));
  EXPECT_TRUE(std::filesystem::is_empty(dir / "a/b"));  // nothing of the trial file stays
  EXPECT_TRUE(make_output_directory("{prompt}.png").ok());
}

TEST(MakeOutputDirectory, FailsWhereNothingCanBeWritten) {
  TempDir dir;
  std::ofstream(dir / "file") << "1";
  for (const std::string& name :
       {(dir / "file/x.png").string(), (dir / "file/sub/x.png").string(), std::string("/proc/x.png")}) {
    const auto r = make_output_directory(name);
    ASSERT_FALSE(r.ok()) << name;
    EXPECT_EQ(r.error().code, ErrorCode::failed) << name;
    EXPECT_EQ(r.error().message.compare(0, 8, "[output]"), 0) << r.error().message;
  }
}

}  // namespace
}  // namespace danqing::app
