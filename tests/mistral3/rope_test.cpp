// Rotary tables and masks: numbers of transformers, and what can be worked out by hand.
#include <cmath>

#include "models/mistral3/config.h"
#include "testing/testing.h"

namespace danqing::mistral3 {
namespace {

using danqing::testing::data;
using danqing::testing::golden;

Json fixture() {
  auto j = read_json(data("fixtures/ernie-tiny/text_encoder/config.json"));
  EXPECT_TRUE(j.ok());
  return j.ok() ? *j : Json::object();
}

void expect_frequencies(const Config& c, const Tensor& expected) {
  const RopeTable t = rope_table(c);
  EXPECT_EQ(t.attention_factor, 1.0f);  // mscale equals mscale_all_dim
  ASSERT_EQ(static_cast<int64_t>(t.inv_freq.size()), expected.count());
  for (size_t i = 0; i < t.inv_freq.size(); ++i)  // same operations in f32; only pow may differ, by an ulp or two
    EXPECT_NEAR(t.inv_freq[i], expected.data[i], 2.5e-7f * expected.data[i]) << "frequency " << i;
}

TEST(Rope, YarnFrequenciesEqualTransformers) {
  DQ_ASSERT_OK(const Config c, Config::parse(fixture(), "config.json"));
  expect_frequencies(c, golden("ernie-tiny/golden/text_f32").f32("rope.inv_freq"));
}

TEST(Rope, YarnRampMovesWithTheOriginalContext) {
  const auto g = golden("ernie-tiny/golden/text_llama4_scale");
  for (int original : {64, 16}) {
    Json j = fixture();
    j["text_config"]["rope_parameters"]["original_max_position_embeddings"] = original;
    DQ_ASSERT_OK(const Config c, Config::parse(j, "config.json"));
    expect_frequencies(c, g.f32("original" + std::to_string(original) + ".inv_freq"));
  }
}

TEST(Rope, AttentionFactorRule) {
  Json j = fixture();
  Json& rope = j["text_config"]["rope_parameters"];
  auto factor = [&] {
    auto c = Config::parse(j, "config.json");
    EXPECT_TRUE(c.ok());
    return c.ok() ? rope_table(*c).attention_factor : 0;
  };
  const float yarn16 = static_cast<float>(0.1 * std::log(16.0) + 1);
  rope["mscale"] = 0.5;
  EXPECT_FLOAT_EQ(factor(), (0.05f * std::log(16.0f) + 1) / yarn16);
  rope["mscale_all_dim"] = 0;  // one of them missing: the paper's factor
  EXPECT_FLOAT_EQ(factor(), yarn16);
  rope["attention_factor"] = 0.75;  // said outright
  EXPECT_FLOAT_EQ(factor(), 0.75f);
}

TEST(Rope, PlainFrequenciesArePowersOfTheta) {
  Config c;
  c.head_dim = 8, c.rope_theta = 10000;
  const RopeTable t = rope_table(c);
  EXPECT_EQ(t.attention_factor, 1.0f);
  const float expected[] = {1.0f, 0.1f, 0.01f, 0.001f};
  for (size_t i = 0; i < 4; ++i) EXPECT_FLOAT_EQ(t.inv_freq[i], expected[i]);
}

TEST(Rope, TablesRepeatTheHalfAndStartAnywhere) {
  Config c;
  c.head_dim = 4, c.rope_theta = 100, c.original_max_position_embeddings = 4;
  const PositionTables t = position_tables(c, rope_table(c), 5, 2);
  EXPECT_TRUE(t.query_scale.empty());
  ASSERT_EQ(t.cos.size(), 8u);
  EXPECT_FLOAT_EQ(t.cos[4], std::cos(6.0f));
  EXPECT_FLOAT_EQ(t.cos[4], t.cos[6]);
  EXPECT_FLOAT_EQ(t.sin[5], std::sin(0.6f));
  EXPECT_FLOAT_EQ(t.sin[5], t.sin[7]);
}

TEST(QueryScale, StepsAtMultiplesOfTheOriginalContext) {
  Config c;
  c.head_dim = 4, c.original_max_position_embeddings = 16, c.llama_4_scaling_beta = 0.1;
  EXPECT_EQ(query_scale(c, 15), 1.0f);
  EXPECT_FLOAT_EQ(query_scale(c, 16), 1 + 0.1f * std::log(2.0f));
  EXPECT_FLOAT_EQ(query_scale(c, 47), 1 + 0.1f * std::log(3.0f));
  EXPECT_TRUE(position_tables(c, rope_table(c), 0, 16).query_scale.empty());
  EXPECT_EQ(position_tables(c, rope_table(c), 0, 17).query_scale.size(), 17u);
}

TEST(Mask, IsCausalFromTheFirstPosition) {
  Config c;
  const auto m = causal_mask(c, 2, 2, 5);  // positions 2 and 3
  const float x = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(m, (std::vector<float>{0, 0, 0, x, x, 0, 0, 0, 0, x}));
}

TEST(Mask, KeepsToTheWindow) {
  Config c;
  c.sliding_window = 2;
  const auto m = causal_mask(c, 0, 3, 3);
  const float x = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(m, (std::vector<float>{0, x, x, 0, 0, x, x, 0, 0}));
}

}  // namespace
}  // namespace danqing::mistral3
