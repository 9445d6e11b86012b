// Configs: what is read, what is inferred, what is refused.
#include <gmock/gmock.h>

#include "z_image/model_files.h"

namespace danqing::z_image {
namespace {

using ::testing::HasSubstr;

Json tiny_config() {
  auto json = read_json(data("fixtures/zimage-tiny/transformer/config.json"));
  EXPECT_TRUE(json.ok());
  return json.ok() ? *json : Json::object();
}

TEST(Config, ReadsTheTinyModel) {
  DQ_ASSERT_OK(const Config c, Config::parse(tiny_config(), "config.json"));
  EXPECT_EQ(c.dim, 256);
  EXPECT_EQ(c.n_heads, 2);
  EXPECT_EQ(c.n_layers, 2);
  EXPECT_EQ(c.n_refiner_layers, 1);
  EXPECT_EQ(c.ffn_dim, 682);  // int(256 / 3 * 8)
  EXPECT_EQ(c.in_channels, 16);
  EXPECT_EQ(c.patch_size, 2);
  EXPECT_EQ(c.cap_feat_dim, 64);
  EXPECT_EQ(c.axes_dims, (Shape{32, 48, 48}));
  EXPECT_EQ(c.axes_lens, (Shape{1024, 512, 512}));
  EXPECT_FLOAT_EQ(c.norm_eps, 1e-5f);
}

TEST(Config, TheWidthOfTheFeedForwardIsPythonsIntOfAThirdTimesEight) {
  Json j = tiny_config();
  j["dim"] = 3840, j["n_heads"] = 30, j["n_kv_heads"] = 30;
  DQ_ASSERT_OK(const Config c, Config::parse(j, "config.json"));
  EXPECT_EQ(c.ffn_dim, 10240);
}

TEST(Config, InferenceAgreesWithTheConfig) {
  DQ_ASSERT_OK(const Config parsed, Config::parse(tiny_config(), "config.json"));
  DQ_ASSERT_OK(const Config inferred, Config::infer(*tiny_source()));
  EXPECT_EQ(inferred.dim, parsed.dim);
  EXPECT_EQ(inferred.n_heads, parsed.n_heads);
  EXPECT_EQ(inferred.n_layers, parsed.n_layers);
  EXPECT_EQ(inferred.n_refiner_layers, parsed.n_refiner_layers);
  EXPECT_EQ(inferred.ffn_dim, parsed.ffn_dim);
  EXPECT_EQ(inferred.in_channels, parsed.in_channels);
  EXPECT_EQ(inferred.patch_size, parsed.patch_size);
  EXPECT_EQ(inferred.cap_feat_dim, parsed.cap_feat_dim);
  EXPECT_EQ(inferred.axes_dims, parsed.axes_dims);
  EXPECT_EQ(inferred.qk_norm, parsed.qk_norm);
}

TEST(Config, HostileValuesAreNamed) {
  const std::pair<const char*, Json> cases[] = {
      {"dim", 0},
      {"dim", -256},
      {"dim", 1ull << 40},
      {"dim", "wide"},
      {"dim", 250.5},
      {"n_heads", 3},
      {"n_heads", 0},
      {"n_kv_heads", 1},
      {"n_layers", 1 << 20},
      {"n_layers", 0},
      {"n_refiner_layers", -1},
      {"in_channels", 0},
      {"cap_feat_dim", 1 << 20},
      {"all_patch_size", Json::array({0})},
      {"all_patch_size", Json::array({1000})},
      {"all_patch_size", Json::array()},
      {"all_f_patch_size", Json::array({2})},
      {"axes_dims", Json::array({32, 48})},
      {"axes_dims", Json::array({32, 48, 49})},
      {"axes_dims", Json::array({33, 47, 48})},
      {"axes_dims", Json::array({128, -2, 2})},
      {"axes_lens", Json::array({1024, 512})},
      {"axes_lens", Json::array({0, 512, 512})},
      {"axes_lens", Json::array({1ull << 40, 512, 512})},
      {"rope_theta", 0},
      {"t_scale", 0},
      {"t_scale", 1e300},
      {"norm_eps", 0},
      {"norm_eps", 1e300},
      {"_class_name", "FluxTransformer2DModel"},
  };
  for (const auto& [field, value] : cases) {
    Json j = tiny_config();
    j[field] = value;
    const auto r = Config::parse(j, "here/config.json");
    ASSERT_FALSE(r.ok()) << field << " " << value.dump();
    EXPECT_EQ(r.error().code, ErrorCode::bad_input) << field;
    EXPECT_THAT(r.error().message, HasSubstr("here/config.json")) << field;
  }
  for (const char* field : {"dim", "n_heads", "n_layers", "n_refiner_layers", "in_channels", "cap_feat_dim"}) {
    Json j = tiny_config();
    j.erase(field);
    const auto r = Config::parse(j, "here/config.json");
    ASSERT_FALSE(r.ok()) << field;
    EXPECT_THAT(r.error().message, HasSubstr(field));
  }
  EXPECT_FALSE(Config::parse(Json::array(), "x").ok());
}

// Every tensor that sizes are read from, missing or of another shape.
TEST(Config, HostileTensorsAreNamed) {
  for (const char* name : {"all_x_embedder.2-1.weight", "cap_embedder.0.weight", "t_embedder.mlp.0.weight",
                           "layers.0.feed_forward.w1.weight", "cap_pad_token"}) {
    std::vector<Stored> tensors = stored(*tiny_source());
    std::erase_if(tensors, [&](const Stored& t) { return t.name == name; });
    ASSERT_EQ(tensors.size() + 1, tiny_source()->tensors().size()) << name;
    const auto r = Transformer::load(cpu(), files_of(in_memory(tensors)), {});
    ASSERT_FALSE(r.ok()) << name;
    EXPECT_EQ(r.error().code, ErrorCode::bad_input) << name;
    for (Stored& t : tensors = stored(*tiny_source()))
      if (t.name == name) t.shape = {static_cast<int64_t>(t.bytes.size() / 2), 1, 1, 1};
    const auto shaped = Transformer::load(cpu(), files_of(in_memory(tensors)), {});
    ASSERT_FALSE(shaped.ok()) << name;
    EXPECT_EQ(shaped.error().code, ErrorCode::bad_input) << name;
  }
}

TEST(Forward, WrongInputsAreUsageErrors) {
  const auto model = load_tiny(DType::f32);
  ASSERT_TRUE(model);
  const Tensor latents(Shape{16, 2, 2}), text(Shape{3, 64});
  struct Case {
    const char* what;
    std::vector<Tensor> latents, captions;
    std::vector<float> times;
  };
  const Case cases[] = {
      {"nothing", {}, {}, {}},
      {"rank", {Tensor(Shape{1, 16, 2, 2})}, {text}, {0}},
      {"channels", {Tensor(Shape{8, 2, 2})}, {text}, {0}},
      {"no rows", {Tensor(Shape{16, 0, 2})}, {text}, {0}},
      {"odd", {Tensor(Shape{16, 3, 2})}, {text}, {0}},
      {"beyond axes_lens", {Tensor(Shape{16, 2, 1026})}, {text}, {0}},
      {"caption missing", {latents}, {}, {0}},
      {"no caption tokens", {latents}, {Tensor(Shape{0, 64})}, {0}},
      {"caption width", {latents}, {Tensor(Shape{3, 65})}, {0}},
      {"caption beyond axes_lens", {latents}, {Tensor(Shape{1000, 64})}, {0}},
      {"time missing", {latents}, {text}, {}},
      {"time NaN", {latents}, {text}, {std::nanf("")}},
  };
  for (const Case& c : cases) {
    const auto r = model->forward(c.latents, c.captions, c.times);
    ASSERT_FALSE(r.ok()) << c.what;
    EXPECT_EQ(r.error().code, ErrorCode::usage) << c.what;
    EXPECT_THAT(r.error().message, HasSubstr("[transformer] expected")) << c.what;
  }
  for (int64_t bad : {int64_t{0}, int64_t{-1}, int64_t{1} << 40, INT64_MAX}) {
    const int64_t one = 1;
    EXPECT_FALSE(model->measure(bad, 4, {&one, 1}).ok()) << bad;
    EXPECT_FALSE(model->measure(4, 4, {&bad, 1}).ok()) << bad;
  }
}

TEST(Forward, CancelStopsAndTheModelStaysUsable) {
  const Golden g = golden("zimage-tiny/golden/dit_f32");
  const auto model = load_tiny(DType::f32);
  ASSERT_TRUE(model);
  const Inputs in = inputs(g, "exact32");
  const auto r = model->forward(in.latents, in.captions, in.times, {}, [] { return true; });
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code, ErrorCode::cancelled);
  EXPECT_TRUE(close(run(*model, in)[0], g.f32("exact32.out.0"), kF32));
}

}  // namespace
}  // namespace danqing::z_image
