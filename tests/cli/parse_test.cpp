#include "common/parse.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "common/model_options.h"
#include "common/progress.h"
#include "testing/testing.h"

namespace danqing::app {
namespace {

using testing::TempDir;

TEST(ParseSeed, WholeRangeAndWrapping) {
  EXPECT_EQ(*parse_seed("0"), 0u);
  EXPECT_EQ(*parse_seed("1234567890123"), 1234567890123u);
  EXPECT_EQ(*parse_seed("18446744073709551615"), ~uint64_t{0});
  EXPECT_EQ(*parse_seed("-1"), ~uint64_t{0});
  EXPECT_EQ(*parse_seed("-9223372036854775808"), uint64_t{1} << 63);
}

TEST(ParseSeed, NothingElse) {
  for (const char* text : {"", "-", "+1", " 1", "1 ", "1.5", "1e3", "0x10", "abc", "--1", "18446744073709551616",
                           "-9223372036854775809", "99999999999999999999999", "１"}) {
    const auto r = parse_seed(text);
    ASSERT_FALSE(r.ok()) << text;
    EXPECT_EQ(r.error().code, ErrorCode::usage) << text;
    EXPECT_NE(r.error().message.find("--seed"), std::string::npos) << text;
  }
}

TEST(ParseSeeds, ListsAndRandom) {
  EXPECT_EQ(*parse_seeds("1,2,-1"), (std::vector<uint64_t>{1, 2, ~uint64_t{0}}));
  EXPECT_TRUE(parse_seeds("")->empty());
  EXPECT_TRUE(parse_seeds("random")->empty());
  for (const char* text : {",", "1,", ",1", "1,,2", "1;2", "1, 2", "random,1"})
    EXPECT_FALSE(parse_seeds(text).ok()) << text;
}

TEST(ParseWords, EnhancerAndDtype) {
  EXPECT_EQ(*parse_enhancer_mode("on"), EnhancerMode::on);
  EXPECT_EQ(*parse_enhancer_mode("off"), EnhancerMode::off);
  EXPECT_EQ(*parse_enhancer_mode("auto"), EnhancerMode::automatic);
  EXPECT_FALSE(parse_enhancer_mode("ON").ok());
  EXPECT_FALSE(parse_enhancer_mode("").ok());
  EXPECT_EQ(*parse_compute_type("auto"), ComputeType::automatic);
  EXPECT_EQ(*parse_compute_type("f32"), ComputeType::f32);
  EXPECT_EQ(*parse_compute_type("bfloat16"), ComputeType::bf16);
  EXPECT_EQ(*parse_compute_type("fp16"), ComputeType::f16);
  EXPECT_FALSE(parse_compute_type("int8").ok());
}

Result<std::vector<std::string>> prompts_of(const std::string& content) {
  TempDir dir;
  std::ofstream(dir / "prompts.txt", std::ios::binary) << content;
  return read_prompts((dir / "prompts.txt").string());
}

TEST(ReadPrompts, OneALine) {
  EXPECT_EQ(*prompts_of("a cat\n夜空下的一只猫"), (std::vector<std::string>{"a cat", "夜空下的一只猫"}));
  EXPECT_EQ(*prompts_of("\xEF\xBB\xBFone\r\n\r\n  \ntwo\r\n"), (std::vector<std::string>{"one", "two"}));
  EXPECT_EQ(*prompts_of("  kept  \n"), (std::vector<std::string>{"  kept  "}));
}

TEST(ReadPrompts, EmptyAndMissing) {
  for (const char* content : {"", "\n\n", " \t\r\n"}) {
    const auto r = prompts_of(content);
    ASSERT_FALSE(r.ok());
    EXPECT_EQ(r.error().code, ErrorCode::usage);
  }
  const auto missing = read_prompts("/nonexistent/prompts.txt");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::bad_input);
  EXPECT_NE(missing.error().message.find("/nonexistent/prompts.txt"), std::string::npos);
}

TEST(BarText, FillsFromTheLeft) {
  EXPECT_EQ(bar_text(0, 4), "[----]");
  EXPECT_EQ(bar_text(0.5, 4), "[##--]");
  EXPECT_EQ(bar_text(1, 4), "[####]");
  EXPECT_EQ(bar_text(-1, 4), "[----]");
  EXPECT_EQ(bar_text(7, 4), "[####]");
  EXPECT_EQ(bar_text(0.5, 0), "[]");
}

TEST(ProgressViewMode, QuietIsSilent) { EXPECT_EQ(ProgressView::mode_for(true), ProgressView::Mode::silent); }

}  // namespace
}  // namespace danqing::app
