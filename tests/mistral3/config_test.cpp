// Configs without weights: what is read, what is refused.
#include "models/mistral3/config.h"

#include <gmock/gmock.h>

#include <cmath>

#include "testing/testing.h"

namespace danqing::mistral3 {
namespace {

using danqing::testing::data;
using ::testing::HasSubstr;

Json fixture(const char* component) {
  auto j = read_json(data("fixtures/ernie-tiny") / component / "config.json");
  EXPECT_TRUE(j.ok());
  return j.ok() ? *j : Json::object();
}

/// The original Mistral layout: everything at the top, rope_theta beside it, no head_dim.
Json old_mistral() {
  return {{"model_type", "mistral"},
          {"vocab_size", 32000},
          {"hidden_size", 4096},
          {"intermediate_size", 14336},
          {"num_hidden_layers", 32},
          {"num_attention_heads", 32},
          {"num_key_value_heads", 8},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 10000.0},
          {"hidden_act", "silu"},
          {"max_position_embeddings", 32768},
          {"sliding_window", 4096}};
}

TEST(Config, ReadsTextConfigOfMultimodalModel) {
  DQ_ASSERT_OK(const Config c, Config::parse(fixture("text_encoder"), "config.json"));
  EXPECT_EQ(c.hidden_size, 96);
  EXPECT_EQ(c.head_dim, 128);
  EXPECT_EQ(c.num_hidden_layers, 3);
  EXPECT_EQ(c.num_key_value_heads, 2);
  EXPECT_TRUE(c.yarn);
  EXPECT_EQ(c.original_max_position_embeddings, 16384);
  EXPECT_DOUBLE_EQ(c.llama_4_scaling_beta, 0.1);
  EXPECT_TRUE(c.tie_word_embeddings);
}

TEST(Config, ReadsCausalLanguageModel) {
  DQ_ASSERT_OK(const Config c, Config::parse(fixture("pe"), "config.json"));
  EXPECT_EQ(c.hidden_size, 64);
  EXPECT_EQ(c.intermediate_size, 160);
  EXPECT_TRUE(c.tie_word_embeddings);
}

TEST(Config, ReadsOldMistralLayout) {
  DQ_ASSERT_OK(const Config c, Config::parse(old_mistral(), "config.json"));
  EXPECT_EQ(c.head_dim, 128);
  EXPECT_FALSE(c.yarn);
  EXPECT_EQ(c.rope_theta, 10000.0);
  EXPECT_EQ(c.sliding_window, 4096);
  EXPECT_FALSE(c.tie_word_embeddings);
  EXPECT_EQ(query_scale(c, 1 << 20), 1.0f);
}

TEST(Config, MistralHasNoQueryScalingEvenIfTheFieldIsThere) {
  Json j = fixture("pe");
  j["model_type"] = "mistral";
  DQ_ASSERT_OK(const Config c, Config::parse(j, "config.json"));
  EXPECT_EQ(c.llama_4_scaling_beta, 0);
  EXPECT_TRUE(c.yarn);
}

TEST(Config, WindowLargerThanEverySequenceIsNoWindow) {
  Json j = old_mistral();
  j["sliding_window"] = 32768;
  DQ_ASSERT_OK(const Config large, Config::parse(j, "config.json"));
  EXPECT_EQ(large.sliding_window, 0);
  j["sliding_window"] = nullptr;
  DQ_ASSERT_OK(const Config none, Config::parse(j, "config.json"));
  EXPECT_EQ(none.sliding_window, 0);
}

TEST(Config, DtypesAreIgnored) {
  Json j = fixture("pe");
  j["dtype"] = "no such type";
  j["torch_dtype"] = 17;
  EXPECT_TRUE(Config::parse(j, "config.json").ok());
}

struct Hostile {
  const char* name;
  const char* pointer;  ///< where in pe/config.json
  Json value;
  const char* mentions;  ///< part of the message
};

class HostileConfig : public ::testing::TestWithParam<Hostile> {};

TEST_P(HostileConfig, IsOneClearError) {
  Json j = fixture("pe");
  j[Json::json_pointer(GetParam().pointer)] = GetParam().value;
  const auto r = Config::parse(j, "some/config.json");
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code, ErrorCode::bad_input);
  EXPECT_THAT(r.error().message, HasSubstr("some/config.json"));
  EXPECT_THAT(r.error().message, HasSubstr(GetParam().mentions));
  EXPECT_EQ(r.error().message.find('\n'), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(
    Fields, HostileConfig,
    ::testing::Values(
        Hostile{"type_unknown", "/model_type", "llama", "llama"},
        Hostile{"type_missing", "/model_type", nullptr, "model_type"},
        Hostile{"type_number", "/model_type", 3, "model_type"},
        Hostile{"multimodal_without_text", "/model_type", "mistral3", "text_config"},
        Hostile{"text_config_list", "/text_config", Json::array(), "ministral3"},
        Hostile{"vocab_zero", "/vocab_size", 0, "vocab_size"},
        Hostile{"vocab_huge", "/vocab_size", int64_t{1} << 62, "vocab_size"},
        Hostile{"vocab_beyond_64_bits", "/vocab_size", UINT64_MAX, "vocab_size"},
        Hostile{"hidden_negative", "/hidden_size", -64, "hidden_size"},
        Hostile{"hidden_text", "/hidden_size", "64", "hidden_size"},
        Hostile{"hidden_fraction", "/hidden_size", 64.5, "hidden_size"},
        Hostile{"hidden_missing", "/hidden_size", nullptr, "hidden_size"},
        Hostile{"intermediate_huge", "/intermediate_size", 1 << 30, "intermediate_size"},
        Hostile{"layers_zero", "/num_hidden_layers", 0, "num_hidden_layers"},
        Hostile{"layers_absurd", "/num_hidden_layers", 1000000, "num_hidden_layers"},
        Hostile{"layers_list", "/num_hidden_layers", Json::array({2}), "num_hidden_layers"},
        Hostile{"heads_zero", "/num_attention_heads", 0, "num_attention_heads"},
        Hostile{"kv_not_divisor", "/num_key_value_heads", 3, "num_key_value_heads"},
        Hostile{"kv_more_than_heads", "/num_key_value_heads", 8, "num_key_value_heads"},
        Hostile{"kv_zero", "/num_key_value_heads", 0, "num_key_value_heads"},
        Hostile{"head_dim_odd", "/head_dim", 127, "head_dim"},
        Hostile{"head_dim_huge", "/head_dim", 1 << 20, "head_dim"},
        Hostile{"head_dim_zero", "/head_dim", 0, "head_dim"}, Hostile{"eps_zero", "/rms_norm_eps", 0.0, "rms_norm_eps"},
        Hostile{"eps_negative", "/rms_norm_eps", -1e-5, "rms_norm_eps"},
        Hostile{"activation", "/hidden_act", "gelu", "hidden_act"},
        Hostile{"bias", "/attention_bias", true, "attention_bias"},
        Hostile{"quantised_with_scales", "/quantization_config", {{"quant_method", "fp8"}}, "quantization_config"},
        Hostile{"positions_zero", "/max_position_embeddings", 0, "max_position_embeddings"},
        Hostile{"window_negative", "/sliding_window", -1, "sliding_window"},
        Hostile{"mixed_layers", "/layer_types", Json::array({"full_attention", "sliding_attention"}), "layer_types"},
        Hostile{"sliding_without_window", "/layer_types", Json::array({"sliding_attention"}), "sliding_window"},
        Hostile{"layer_types_text", "/layer_types", "full_attention", "layer_types"},
        Hostile{"tie_text", "/tie_word_embeddings", "yes", "tie_word_embeddings"},
        Hostile{"rope_list", "/rope_parameters", Json::array({1}), "rope_parameters"},
        Hostile{"rope_nested", "/rope_parameters/full_attention", {{"rope_theta", 1e4}}, "one set of RoPE"},
        Hostile{"rope_missing_theta", "/rope_parameters", {{"rope_type", "default"}}, "rope_theta"},
        Hostile{"rope_type_unknown", "/rope_parameters/rope_type", "longrope", "longrope"},
        Hostile{"theta_one", "/rope_parameters/rope_theta", 1.0, "rope_theta"},
        Hostile{"theta_negative", "/rope_parameters/rope_theta", -1e6, "rope_theta"},
        Hostile{"partial_rotary", "/rope_parameters/partial_rotary_factor", 0.5, "partial_rotary_factor"},
        Hostile{"factor_zero", "/rope_parameters/factor", 0, "factor"},
        Hostile{"factor_text", "/rope_parameters/factor", "16", "factor"},
        Hostile{"beta_reversed", "/rope_parameters/beta_slow", 64.0, "beta_slow"},
        Hostile{"beta_negative", "/rope_parameters/beta_fast", -32.0, "beta_fast"},
        Hostile{"original_zero", "/rope_parameters/original_max_position_embeddings", 0,
                "original_max_position_embeddings"},
        Hostile{"mscale_infinite_ratio", "/rope_parameters/mscale_all_dim", -10 / std::log(16.0), "attention factor"},
        Hostile{"query_scaling_absurd", "/rope_parameters/llama_4_scaling_beta", 1e9, "llama_4_scaling_beta"}),
    [](const auto& p) { return std::string(p.param.name); });

TEST(Config, RefusesWhatIsNoObject) {
  for (const Json& j : {Json(), Json(3), Json::array(), Json("text")}) EXPECT_FALSE(Config::parse(j, "x").ok());
  EXPECT_FALSE(Config::parse({{"model_type", "qwen3"}, {"text_config", Json::object()}}, "x").ok());
}

TEST(Tensors, TableFollowsTheConfig) {
  DQ_ASSERT_OK(Config c, Config::parse(fixture("pe"), "config.json"));
  EXPECT_EQ(tensor_table(c, 2, true, true).size(), 1 + 2 * 9 + 1u);  // tied: no lm_head
  EXPECT_EQ(tensor_table(c, 1, false, false).size(), 1 + 9u);
  c.tie_word_embeddings = false;
  const auto all = tensor_table(c, 2, true, true);
  EXPECT_EQ(all.back().name, "lm_head.weight");
  EXPECT_EQ(all.back().shape, (Shape{2560, 64}));
}

/// A source that holds only names and shapes (every tensor shares the same few zero bytes' worth of storage).
std::shared_ptr<const TensorSource> shapes_only(const std::vector<std::pair<std::string, Shape>>& tensors) {
  std::vector<TensorInfo> infos;
  uint64_t offset = 0;
  for (const auto& [name, shape] : tensors) {
    const auto bytes = static_cast<uint64_t>(element_count(shape));
    infos.push_back({name, DType::f8_e4m3, shape, 0, offset, bytes});
    offset += bytes;
  }
  return TensorSource::from_memory(std::move(infos), std::vector<std::byte>(offset));
}

std::vector<std::pair<std::string, Shape>> bare_file(const std::string& prefix, int layers) {
  std::vector<std::pair<std::string, Shape>> t{{prefix + "embed_tokens.weight", {50, 24}}, {"vision_tower.x", {2}}};
  for (int i = 0; i < layers; ++i) {
    t.push_back({prefix + layer_tensor(i, "input_layernorm"), {24}});
    t.push_back({prefix + layer_tensor(i, "self_attn.q_proj"), {512, 24}});
    t.push_back({prefix + layer_tensor(i, "self_attn.k_proj"), {256, 24}});
    t.push_back({prefix + layer_tensor(i, "mlp.gate_proj"), {40, 24}});
  }
  return t;
}

TEST(Infer, ReadsSizesOffShapesUnderAnyPrefix) {
  for (const char* prefix : {"", "model.", "language_model.model.", "model.language_model.", "text_encoder."}) {
    DQ_ASSERT_OK(const Config c, Config::infer(*shapes_only(bare_file(prefix, 5))));
    EXPECT_EQ(c.vocab_size, 50);
    EXPECT_EQ(c.hidden_size, 24);
    EXPECT_EQ(c.intermediate_size, 40);
    EXPECT_EQ(c.num_hidden_layers, 5);
    EXPECT_EQ(c.num_attention_heads, 4);
    EXPECT_EQ(c.num_key_value_heads, 2);
    EXPECT_EQ(c.head_dim, 128);
    EXPECT_TRUE(c.yarn && c.tie_word_embeddings);
    EXPECT_EQ(c.original_max_position_embeddings, 16384);
  }
}

TEST(Infer, RefusesWhatItCannotRead) {
  EXPECT_FALSE(Config::infer(*shapes_only({{"blk.0.attn_q.weight", {4, 4}}})).ok());  // no embedding
  EXPECT_FALSE(Config::infer(*shapes_only({{"embed_tokens.weight", {4, 4}}})).ok());  // no layers
  auto vector_embedding = bare_file("model.", 2);
  vector_embedding[0].second = {1200};
  EXPECT_FALSE(Config::infer(*shapes_only(vector_embedding)).ok());
  auto small_heads = bare_file("model.", 2);
  small_heads[3].second = {96, 24};  // fewer rows than one head of 128
  EXPECT_FALSE(Config::infer(*shapes_only(small_heads)).ok());
}

TEST(Cost, CountsTheReleasedModelInPlausibleNumbers) {
  Json j = old_mistral();
  DQ_ASSERT_OK(const Config c, Config::parse(j, "config.json"));
  // Mistral 7B: 7.11e9 multiplied weights (7.24e9 parameters less the embedding table), twice as many operations.
  EXPECT_NEAR(flops_per_token(c, 0), 2 * 7.11e9, 0.01e9);
  EXPECT_EQ(flops_per_token(c, 100) - flops_per_token(c, 0), 4.0 * 100 * 4096 * 32);
  EXPECT_EQ(kv_bytes(c, 1, DType::f16), 2u * 32 * 8 * 128 * 2);
}

}  // namespace
}  // namespace danqing::mistral3
