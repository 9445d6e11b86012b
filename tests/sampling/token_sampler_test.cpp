#include "sampling/token_sampler.h"

#include <cmath>
#include <numeric>

#include "testing/testing.h"

namespace danqing {
namespace {

using testing::golden;

TEST(TokenSampler, NucleusOfThePromptEnhancer) {
  const auto g = golden("ernie-tiny/golden/pe");
  for (const std::string name : {"en", "zh", "quotes", "system"}) {
    const std::vector<float> logits = g.f32(name + ".first_logits").data;
    const std::vector<float> probabilities = token_probabilities(logits, {});
    std::vector<int32_t> ids = g.ids(name + ".nucleus_ids");
    const std::vector<float> expected = g.f32(name + ".nucleus_probs").data;
    size_t kept = 0;
    for (const float p : probabilities) kept += p > 0;
    EXPECT_EQ(kept, ids.size()) << name;  // exactly the candidates of the golden
    for (size_t i = 0; i < ids.size(); ++i)
      EXPECT_NEAR(probabilities[static_cast<size_t>(ids[i])], expected[i], 1e-6) << name << " " << ids[i];
    EXPECT_NEAR(std::accumulate(probabilities.begin(), probabilities.end(), 0.0), 1.0, 1e-6);
  }
}

TEST(TokenSampler, FirstTokensOfThePromptEnhancer) {
  const auto g = golden("ernie-tiny/golden/pe");
  for (const std::string name : {"en", "zh", "quotes", "system"}) {
    const std::vector<float> logits = g.f32(name + ".first_logits").data;
    CpuGenerator generator(1234);
    EXPECT_EQ(choose_token(logits, {}, generator), g.ids(name + ".sampled_ids_seed1234").at(0)) << name;
    EXPECT_EQ(choose_token(logits, {.temperature = 0}, generator), g.ids(name + ".greedy_ids").at(0)) << name;
  }
}

TEST(TokenSampler, GreedyLeavesTheGeneratorAloneAndTakesTheLowestOfTies) {
  CpuGenerator a(1), b(1);
  EXPECT_EQ(choose_token(std::vector<float>{0, 3, 3, 1}, {.temperature = 0}, a), 1);
  EXPECT_EQ(a.next_u32(), b.next_u32());
}

TEST(TokenSampler, EveryEntryOfTheVocabularyDrawsOneExponential) {
  CpuGenerator a(1), b(1);
  choose_token(std::vector<float>{5, 0, 0, 0}, {.top_k = 1}, a);
  for (int i = 0; i < 4; ++i) b.exponential();
  EXPECT_EQ(a.next_u32(), b.next_u32());
}

TEST(TokenSampler, FiltersOneByOne) {
  const std::vector<float> logits = {std::log(0.5f), std::log(0.25f), std::log(0.15f), std::log(0.1f)};
  const TokenSamplerOptions plain{.temperature = 1, .top_k = 0, .top_p = 1};
  const std::vector<float> all = token_probabilities(logits, plain);
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(all[i], std::exp(logits[i]), 1e-6);
  const std::vector<float> two = token_probabilities(logits, {.temperature = 1, .top_k = 2, .top_p = 1});
  EXPECT_NEAR(two[0], 2.0 / 3, 1e-6);
  EXPECT_EQ(two[2], 0);
  const std::vector<float> nucleus = token_probabilities(logits, {.temperature = 1, .top_k = 0, .top_p = 0.8f});
  EXPECT_NEAR(nucleus[2], 0.15 / 0.9, 1e-6);  // 0.1 may go, 0.1 + 0.15 may not
  EXPECT_EQ(nucleus[3], 0);
  const std::vector<float> one = token_probabilities(logits, {.temperature = 1, .top_k = 0, .top_p = 0});
  EXPECT_EQ(one[0], 1);
  const std::vector<float> cold = token_probabilities(logits, {.temperature = 0.5f, .top_k = 0, .top_p = 1});
  EXPECT_NEAR(cold[0], 0.25 / (0.25 + 0.0625 + 0.0225 + 0.01), 1e-6);
  EXPECT_EQ(token_probabilities(std::vector<float>{1, 2, 2}, {.temperature = 1, .top_k = 1, .top_p = 1}),
            (std::vector<float>{0, 0.5f, 0.5f}));  // both of the tied stay
}

TEST(TokenSampler, SurvivesBrokenLogits) {
  CpuGenerator g(1);
  const float inf = HUGE_VALF, nan = std::nanf("");
  EXPECT_EQ(choose_token({}, {}, g), -1);
  EXPECT_EQ(choose_token(std::vector<float>{nan, nan}, {}, g), -1);
  EXPECT_EQ(choose_token(std::vector<float>{-inf, nan}, {.temperature = 0}, g), -1);
  EXPECT_EQ(choose_token(std::vector<float>{nan, 1, -inf}, {}, g), 1);
  EXPECT_EQ(choose_token(std::vector<float>{1, inf, 2}, {}, g), 1);
  EXPECT_EQ(choose_token(std::vector<float>{-3, -2, -1}, {.temperature = 1e-42f}, g), 2);  // -1/T overflows
  EXPECT_EQ(choose_token(std::vector<float>{1, 2}, {.temperature = nan}, g), 1);
  const std::vector<float> even = token_probabilities(std::vector<float>{1, -inf, 3}, {.temperature = inf, .top_p = 1});
  EXPECT_EQ(even, (std::vector<float>{0.5f, 0, 0.5f}));
}

}  // namespace
}  // namespace danqing
