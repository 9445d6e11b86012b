// Configs of the transformer: the fixtures', hostile ones, and those read off tensor shapes.
#include "models/ernie_image/transformer.h"
#include "testing/testing.h"

namespace danqing::ernie_image {
namespace {

using testing::data;

const char* kGood = R"({"_class_name": "ErnieImageTransformer2DModel", "eps": 1e-06, "ffn_hidden_size": 512,
  "hidden_size": 256, "in_channels": 128, "num_attention_heads": 2, "num_layers": 2, "out_channels": 128,
  "patch_size": 1, "qk_layernorm": true, "rope_axes_dim": [32, 48, 48], "rope_theta": 256, "text_in_dim": 96})";

Json good() { return Json::parse(kGood); }

void expect_equal(const Config& a, const Config& b) {
  EXPECT_EQ(a.hidden_size, b.hidden_size);
  EXPECT_EQ(a.num_attention_heads, b.num_attention_heads);
  EXPECT_EQ(a.num_layers, b.num_layers);
  EXPECT_EQ(a.ffn_hidden_size, b.ffn_hidden_size);
  EXPECT_EQ(a.in_channels, b.in_channels);
  EXPECT_EQ(a.out_channels, b.out_channels);
  EXPECT_EQ(a.patch_size, b.patch_size);
  EXPECT_EQ(a.text_in_dim, b.text_in_dim);
  EXPECT_EQ(a.rope_axes_dim, b.rope_axes_dim);
  EXPECT_EQ(a.rope_theta, b.rope_theta);
  EXPECT_EQ(a.eps, b.eps);
  EXPECT_EQ(a.qk_layernorm, b.qk_layernorm);
}

/// A source of zeros with every tensor of a table, names behind a prefix.
std::shared_ptr<const TensorSource> zeros(const std::vector<TensorSpec>& specs, const std::string& prefix) {
  std::vector<TensorInfo> tensors;
  uint64_t offset = 0;
  for (const TensorSpec& s : specs) {
    const uint64_t bytes = static_cast<uint64_t>(element_count(s.shape)) * 4;
    tensors.push_back({prefix + s.name, DType::f32, s.shape, 0, offset, bytes});
    offset += bytes;
  }
  return TensorSource::from_memory(std::move(tensors), std::vector<std::byte>(offset));
}

TEST(Config, ReadsTheFixtures) {
  for (const auto& path : {data("fixtures/ernie-tiny/transformer"), testing::mini_model() / "transformer"}) {
    DQ_ASSERT_OK(Json json, read_json(path / "config.json"));
    DQ_ASSERT_OK(Config c, Config::parse(json, path.string()));
    EXPECT_EQ(c.hidden_size, json["hidden_size"].get<int64_t>());
    EXPECT_EQ(c.head_dim() * c.num_attention_heads, c.hidden_size);
    EXPECT_TRUE(c.has_text_proj());
    // The table is exactly the file.
    DQ_ASSERT_OK(auto source, TensorSource::open(path));
    DQ_ASSERT_OK(BoundTensors bound, danqing::bind(source, tensor_table(c), name_map(), "transformer"));
    EXPECT_TRUE(bound.unused.empty()) << bound.unused.front();
    EXPECT_EQ(bound.tensors.size(), source->tensors().size());
    // And the shapes alone give the same config.
    DQ_ASSERT_OK(Config inferred, Config::infer(*source));
    expect_equal(inferred, c);
  }
}

TEST(Config, InfersBehindAnyPrefixAndVariant) {
  DQ_ASSERT_OK(Config base, Config::parse(good(), "config.json"));
  for (const std::string& prefix : name_map().prefixes) {
    Config c = base;
    DQ_ASSERT_OK(Config same, Config::infer(*zeros(tensor_table(c), prefix)));
    expect_equal(same, c);
    c.text_in_dim = c.hidden_size;  // then there is no projection
    c.patch_size = 2;
    c.qk_layernorm = false;  // then the head size is taken to be 128
    DQ_ASSERT_OK(Config other, Config::infer(*zeros(tensor_table(c), prefix)));
    expect_equal(other, c);
  }
}

TEST(Config, InferRefusesWhatShapesDoNotTell) {
  DQ_ASSERT_OK(Config c, Config::parse(good(), "config.json"));
  c.num_attention_heads = 256 / 8;
  const auto odd_heads = Config::infer(*zeros(tensor_table(c), ""));
  ASSERT_FALSE(odd_heads.ok());
  EXPECT_NE(odd_heads.error().message.find("config.json"), std::string::npos) << odd_heads.error().message;
  for (const char* missing : {"x_embedder.proj.weight", "layers.0.mlp.gate_proj.weight", "final_linear.weight"}) {
    std::vector<TensorSpec> specs = tensor_table(c);
    specs.erase(std::find_if(specs.begin(), specs.end(), [&](const TensorSpec& s) { return s.name == missing; }));
    const auto r = Config::infer(*zeros(specs, ""));
    ASSERT_FALSE(r.ok()) << missing;
    EXPECT_NE(r.error().message.find(missing), std::string::npos) << r.error().message;
  }
}

TEST(Config, AbsentFieldsTakeTheLibrarysDefaults) {
  Json j = good();
  for (const char* f : {"_class_name", "eps", "patch_size", "qk_layernorm", "rope_axes_dim", "rope_theta"}) j.erase(f);
  DQ_ASSERT_OK(Config c, Config::parse(j, "config.json"));
  DQ_ASSERT_OK(Config full, Config::parse(good(), "config.json"));
  expect_equal(c, full);
}

TEST(Config, EqualTextWidthHasNoProjection) {
  Json j = good();
  j["text_in_dim"] = 256;
  DQ_ASSERT_OK(Config c, Config::parse(j, "config.json"));
  EXPECT_FALSE(c.has_text_proj());
  for (const TensorSpec& s : tensor_table(c)) EXPECT_EQ(s.name.find("text_proj"), std::string::npos);
}

TEST(Config, HostileConfigsAreOneClearError) {
  struct Case {
    const char* field;
    const char* value;  // JSON; empty: the field is removed
  };
  const Case cases[] = {
      {"hidden_size", "0"},
      {"hidden_size", "-256"},
      {"hidden_size", "9223372036854775807"},
      {"hidden_size", "1e3"},
      {"hidden_size", "\"256\""},
      {"hidden_size", "null"},
      {"hidden_size", ""},
      {"hidden_size", "[256]"},
      {"hidden_size", "255"},
      {"num_attention_heads", "0"},
      {"num_attention_heads", "-2"},
      {"num_attention_heads", "3"},
      {"num_attention_heads", "18446744073709551615"},
      {"num_attention_heads", "256"},
      {"num_layers", "0"},
      {"num_layers", "-1"},
      {"num_layers", "1000000000"},
      {"num_layers", "true"},
      {"ffn_hidden_size", "0"},
      {"ffn_hidden_size", "4611686018427387904"},
      {"ffn_hidden_size", "{}"},
      {"in_channels", "0"},
      {"in_channels", "-128"},
      {"out_channels", "0"},
      {"out_channels", "99999999"},
      {"patch_size", "0"},
      {"patch_size", "-1"},
      {"patch_size", "4294967296"},
      {"patch_size", "[1, 1]"},
      {"text_in_dim", "0"},
      {"text_in_dim", "\"wide\""},
      {"rope_axes_dim", "[]"},
      {"rope_axes_dim", "[64, 64]"},
      {"rope_axes_dim", "[32, 48, 32]"},
      {"rope_axes_dim", "[32, 48, 64]"},
      {"rope_axes_dim", "[33, 47, 48]"},
      {"rope_axes_dim", "[0, 64, 64]"},
      {"rope_axes_dim", "[-32, 80, 80]"},
      {"rope_axes_dim", "[9223372036854775806, 2, 128]"},
      {"rope_axes_dim", "[32, 48, 48.5]"},
      {"rope_axes_dim", "128"},
      {"rope_theta", "0"},
      {"rope_theta", "-256"},
      {"rope_theta", "1e300"},
      {"rope_theta", "\"256\""},
      {"eps", "0"},
      {"eps", "-1e-6"},
      {"eps", "1e300"},
      {"eps", "[]"},
      {"qk_layernorm", "1"},
      {"qk_layernorm", "\"yes\""},
      {"_class_name", "\"FluxTransformer2DModel\""},
      {"_class_name", "7"},
  };
  for (const Case& k : cases) {
    Json j = good();
    if (*k.value)
      j[k.field] = Json::parse(k.value);
    else
      j.erase(k.field);
    const auto r = Config::parse(j, "config.json");
    ASSERT_FALSE(r.ok()) << k.field << " = " << k.value;
    const std::string& m = r.error().message;
    EXPECT_EQ(r.error().code, ErrorCode::bad_input) << m;
    EXPECT_EQ(m.find('\n'), std::string::npos) << m;
    EXPECT_NE(m.find("config.json"), std::string::npos) << m;
    EXPECT_NE(m.find("expected"), std::string::npos) << m;
    // A head count that does not fit names both fields; a hidden size that breaks the axes names the axes.
    EXPECT_TRUE(m.find(k.field) != std::string::npos || m.find("rope_axes_dim") != std::string::npos ||
                m.find("num_attention_heads") != std::string::npos)
        << k.field << ": " << m;
  }
  for (const char* whole : {"[]", "3", "\"config\"", "null"})
    EXPECT_FALSE(Config::parse(Json::parse(whole), "config.json").ok()) << whole;
}

TEST(Flops, CountsTheTrueModel) {
  Config c;
  c.hidden_size = 4096, c.num_attention_heads = 32, c.num_layers = 36, c.ffn_hidden_size = 12288;
  c.in_channels = c.out_channels = 128, c.text_in_dim = 3072, c.rope_axes_dim = {32, 48, 48};
  // By hand: 36 layers of 2 x 4608 tokens x (4 x 4096^2 + 3 x 4096 x 12288) and 4 x 4608^2 x 4096 for attention.
  const double layers = 36 * (2.0 * 4608 * (4.0 * 4096 * 4096 + 3.0 * 4096 * 12288) + 4.0 * 4608 * 4608 * 4096);
  const double around = 2.0 * (4096.0 * 4096 * 256 + 512.0 * 4096 * 3072 + 10.0 * 4096 * 4096);
  EXPECT_NEAR(Transformer::flops(c, 1, 64, 64, 512), layers + around, 1e-9 * layers);
  EXPECT_DOUBLE_EQ(Transformer::flops(c, 3, 64, 64, 512), 3 * Transformer::flops(c, 1, 64, 64, 512));
}

}  // namespace
}  // namespace danqing::ernie_image
