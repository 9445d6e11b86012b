// Configs of Qwen3: what is read, what is inferred, what is refused.
#include <gmock/gmock.h>

#include "models/qwen3/qwen3.h"
#include "testing/testing.h"

namespace danqing::qwen3 {
namespace {

using ::testing::HasSubstr;

Json tiny_config() {
  auto json = read_json(danqing::testing::data("fixtures/zimage-tiny/text_encoder/config.json"));
  EXPECT_TRUE(json.ok());
  return json.ok() ? *json : Json::object();
}

TEST(Config, InferenceAgreesWithTheConfig) {
  DQ_ASSERT_OK(const Config parsed, parse_config(tiny_config(), "config.json"));
  EXPECT_TRUE(parsed.qk_norm);
  EXPECT_FALSE(parsed.yarn);
  DQ_ASSERT_OK(const auto source, TensorSource::open(danqing::testing::data("fixtures/zimage-tiny/text_encoder")));
  DQ_ASSERT_OK(const Config inferred, infer_config(*source));
  EXPECT_EQ(inferred.vocab_size, parsed.vocab_size);
  EXPECT_EQ(inferred.hidden_size, parsed.hidden_size);
  EXPECT_EQ(inferred.intermediate_size, parsed.intermediate_size);
  EXPECT_EQ(inferred.num_hidden_layers, parsed.num_hidden_layers);
  EXPECT_EQ(inferred.num_attention_heads, parsed.num_attention_heads);
  EXPECT_EQ(inferred.num_key_value_heads, parsed.num_key_value_heads);
  EXPECT_EQ(inferred.head_dim, parsed.head_dim);
  EXPECT_EQ(inferred.rms_norm_eps, parsed.rms_norm_eps);
  EXPECT_EQ(inferred.rope_theta, parsed.rope_theta);
}

TEST(Config, OldConfigsKeepThetaAtTheTop) {
  Json j = tiny_config();
  j.erase("rope_parameters");
  j["rope_theta"] = 5e5;
  j["rope_scaling"] = nullptr;
  DQ_ASSERT_OK(const Config c, parse_config(j, "config.json"));
  EXPECT_EQ(c.rope_theta, 5e5);
}

TEST(Config, WhatWouldChangeTheResultIsRefused) {
  const std::pair<const char*, Json> cases[] = {
      {"model_type", "qwen2"},
      {"model_type", 3},
      {"hidden_act", "gelu"},
      {"attention_bias", true},
      {"use_sliding_window", true},
      {"layer_types", Json::array({"full_attention", "sliding_attention"})},
      {"layer_types", "all"},
      {"quantization_config", Json::object()},
      {"rope_parameters", {{"rope_type", "yarn"}, {"rope_theta", 1e6}}},
      {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 0}}},
      {"rope_parameters", Json::array()},
      {"vocab_size", 0},
      {"hidden_size", 1ull << 40},
      {"intermediate_size", -1},
      {"num_hidden_layers", 100000},
      {"num_attention_heads", 0},
      {"num_key_value_heads", 3},
      {"head_dim", 127},
      {"rms_norm_eps", 0},
      {"max_position_embeddings", 0},
  };
  for (const auto& [field, value] : cases) {
    Json j = tiny_config();
    j[field] = value;
    const auto r = parse_config(j, "here/config.json");
    ASSERT_FALSE(r.ok()) << field << " " << value.dump();
    EXPECT_EQ(r.error().code, ErrorCode::bad_input) << field;
    EXPECT_THAT(r.error().message, HasSubstr("here/config.json")) << field;
  }
  EXPECT_FALSE(parse_config(Json::array(), "x").ok());
}

}  // namespace
}  // namespace danqing::qwen3
