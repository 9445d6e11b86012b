// Trials of a device, what is kept of them, and what "auto" makes of the results.
#include "tune/tune.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/file.h"
#include "testing/testing.h"

namespace danqing::tune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr TrialOptions kSmall{0.5, 0.04};

TEST(Trials, plain_ggml_on_the_cpu_is_right_in_every_stage) {
  DQ_ASSERT_OK(const auto cpu, Device::open("cpu"));
  CpuOptions plain;
  plain.kernels = CpuKernels::ggml;
  DQ_ASSERT_OK(const auto other, Device::open("cpu", plain));
  for (const Stage stage : {Stage::text, Stage::denoiser, Stage::vae}) {
    DQ_ASSERT_OK(const Trial t, run_trial(*other, *cpu, stage, false, kSmall));
    EXPECT_EQ(t.stage, stage);
    EXPECT_GT(t.deviation, 0) << name(stage);  // other sums, other roundings
    EXPECT_LT(t.deviation, kMostDeviation) << name(stage);
    EXPECT_GT(t.seconds, 0);
  }
}

TEST(Trials, a_device_without_memory_is_an_error) {
  DQ_ASSERT_OK(const auto cpu, Device::open("cpu"));
  DQ_ASSERT_OK(const auto small, Device::open("cpu"));
  small->set_limit(1000);
  const auto t = run_trial(*small, *cpu, Stage::text, false, kSmall);
  ASSERT_FALSE(t.ok());
  EXPECT_EQ(t.error().code, ErrorCode::does_not_fit);
}

TEST(Tuning, is_kept_and_read_again_until_the_file_is_nonsense) {
  const testing::TempDir dir;
  Options o;
  o.cache_file = dir.path() / "a/tuning.json";
  o.trial = kSmall;
  int said = 0;
  o.say = [&](const std::string&) { ++said; };
  DQ_ASSERT_OK(const Tuning first, tuning_of("cpu", o));
  EXPECT_TRUE(first.measured);
  EXPECT_THAT(first.wrong(), IsEmpty());
  EXPECT_EQ(first.trials.size(), 3u);
  DQ_ASSERT_OK(const Tuning again, tuning_of("cpu", o));
  EXPECT_FALSE(again.measured);
  EXPECT_EQ(again.trials.size(), 3u);
  EXPECT_DOUBLE_EQ(again.score(), first.score());
  EXPECT_EQ(said, 1);
  for (const char* text : {"{", "[]", "{\"x\": 1}", "{\"trials\": 3}", ""}) {
    ASSERT_TRUE(write_file(o.cache_file, text).ok());
    DQ_ASSERT_OK(const Tuning anew, tuning_of("cpu", o));
    EXPECT_TRUE(anew.measured) << text;
  }
  o.again = true;
  DQ_ASSERT_OK(const Tuning forced, tuning_of("cpu", o));
  EXPECT_TRUE(forced.measured);
  EXPECT_FALSE(tuning_of("vulkan99", o).ok());
}

Tuning of(const std::string& device, const std::string& card, double seconds, double off = 1e-3) {
  Tuning t;
  t.device = device, t.card = card;
  for (const Stage stage : {Stage::text, Stage::denoiser, Stage::vae}) t.trials.push_back({stage, false, off, seconds});
  return t;
}

TEST(Tuning, a_wrong_card_says_where) {
  EXPECT_THAT(of("vulkan0", "a", 1).wrong(), IsEmpty());
  EXPECT_THAT(of("vulkan0", "a", 1, 0.3).wrong(), HasSubstr("text is off by 3.0e-01"));
  EXPECT_THAT(of("vulkan0", "a", 1, std::numeric_limits<double>::infinity()).wrong(), HasSubstr("computes wrongly"));
  Tuning flash = of("vulkan0", "a", 1);  // an attention of its own that is wrong is only not used
  flash.trials.push_back({Stage::denoiser, true, 0.5, 0.1});
  EXPECT_THAT(flash.wrong(), IsEmpty());
  EXPECT_DOUBLE_EQ(flash.score(), of("vulkan0", "a", 1).score());
}

TEST(Choose, the_cpu_where_every_card_is_wrong_or_none_is_there) {
  std::vector<std::string> said;
  EXPECT_EQ(choose({}, said), "cpu");
  EXPECT_THAT(said, IsEmpty());
  // The CPU in a card's place: the only device that is surely here.
  EXPECT_EQ(choose({of("cpu", "x", 1, 1.0)}, said), "cpu");
  EXPECT_THAT(said, ElementsAre(HasSubstr("cpu is passed over: it computes wrongly")));
}

TEST(Choose, of_two_backends_of_one_card_the_faster_that_is_right) {
  std::vector<std::string> said;
  EXPECT_EQ(choose({of("cpu", "card", 1), of("vulkan0", "card", 0.5)}, said), "vulkan0");
  EXPECT_THAT(said, ElementsAre(HasSubstr("vulkan0 is used for card: 50 % of the time of cpu")));
  said.clear();
  EXPECT_EQ(choose({of("cpu", "card", 1), of("vulkan0", "card", 0.5, 0.1)}, said), "cpu");
  EXPECT_EQ(choose({of("cpu", "card", 1), of("vulkan0", "other", 0.5)}, said), "cpu");
  EXPECT_THAT(said, IsEmpty());
}

}  // namespace
}  // namespace danqing::tune
