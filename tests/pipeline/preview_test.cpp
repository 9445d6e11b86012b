// Previews: the map is found from examples, drawn from, kept as JSON; and the engine hands them out as it should.
#include "pipeline/preview.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "danqing/engine.h"
#include "testing/testing.h"

namespace danqing {
namespace {

using ::testing::HasSubstr;

/// Latents with every value different, and the picture that a linear decoder with `factor` and `bias` makes of them.
Tensor latents(int64_t channels, int64_t side) {
  Tensor z({1, channels, side, side});
  for (size_t i = 0; i < z.data.size(); ++i) z.data[i] = std::sin(static_cast<float>(i * i % 9973));
  return z;
}
Tensor linear_picture(const Tensor& z, int64_t scale) {
  const int64_t h = z.size(2), w = z.size(3);
  Tensor out({1, 3, h * scale, w * scale});
  for (int64_t c = 0; c < 3; ++c)
    for (int64_t y = 0; y < h * scale; ++y)
      for (int64_t x = 0; x < w * scale; ++x) {
        float v = 0.1f * static_cast<float>(c);
        for (int64_t k = 0; k < z.size(1); ++k)
          v += 0.05f * static_cast<float>((k + c) % 3) *
               z.data[static_cast<size_t>((k * h + y / scale) * w + x / scale)];
        out.data[static_cast<size_t>((c * h * scale + y) * w * scale + x)] = v;
      }
  return out;
}

TEST(Preview, learns_a_linear_decoder_from_one_picture) {
  const Tensor z = latents(4, 16);
  const Tensor picture = linear_picture(z, 8);
  LatentPreview p;
  EXPECT_FALSE(p.ready(4));
  EXPECT_EQ(p.draw(z).width, 0);
  p.learn(z, picture);
  ASSERT_TRUE(p.ready(4));
  EXPECT_FALSE(p.ready(5));
  const Image image = p.draw(z);
  ASSERT_EQ(image.width, 16);
  ASSERT_EQ(image.height, 16);
  for (int i = 0; i < 256; ++i)
    for (int c = 0; c < 3; ++c) {
      const float v = picture.data[static_cast<size_t>((c * 128 + i / 16 * 8) * 128 + i % 16 * 8)];
      // One grey level for the rounding, one for the ridge (0.1%).
      EXPECT_NEAR(image.pixels[static_cast<size_t>(3 * i + c)], v * 127.5f + 127.5f, 2) << i << " " << c;
    }
}

TEST(Preview, keeps_the_old_map_when_an_example_says_nothing) {
  LatentPreview p;
  const Tensor z = latents(4, 8);
  p.learn(z, linear_picture(z, 2));
  const Image before = p.draw(z);
  Tensor nan = linear_picture(z, 2);
  for (float& v : nan.data) v = NAN;
  p.learn(z, nan);
  p.learn(z, Tensor({1, 3, 7, 7}));
  p.learn(Tensor({0}), Tensor({0}));
  EXPECT_EQ(p.draw(z).pixels, before.pixels);
}

TEST(Preview, goes_through_json) {
  LatentPreview p;
  const Tensor z = latents(3, 8);
  p.learn(z, linear_picture(z, 2));
  DQ_ASSERT_OK(const LatentPreview again, LatentPreview::parse(p.to_json(), "x"));
  EXPECT_EQ(again.draw(z).pixels, p.draw(z).pixels);
  for (const char* bad : {R"([])", R"({"latent_channels": 2, "factors": [[1,2,3]], "bias": [0,0,0]})",
                          R"({"latent_channels": 1, "factors": [[1,2]], "bias": [0,0,0]})",
                          R"({"latent_channels": 1, "factors": [[1,2,3]]})", R"({"latent_channels": 0})"}) {
    const auto r = LatentPreview::parse(Json::parse(bad), "file.json");
    ASSERT_FALSE(r) << bad;
    EXPECT_THAT(r.error().message, HasSubstr("file.json"));
  }
}

TEST(Preview, of_the_mini_model_look_like_the_picture) {
  EngineOptions o;
  o.paths.model = testing::mini_model();
  DQ_ASSERT_OK(const auto engine, Engine::open(o));
  GenerateRequest r;
  r.prompts = {"a red apple on green grass under a blue sky"};
  r.seeds = {42};
  r.num_inference_steps = 8;
  DQ_ASSERT_OK(const GenerateResult plain, engine->generate(r));
  std::vector<std::pair<int, Image>> previews;
  RunControl control;
  control.on_preview = [&](int image, int step, const Image& p) {
    EXPECT_EQ(image, 0);
    previews.emplace_back(step, p);
  };
  control.wants_preview = [](int step) { return step % 2 == 1; };
  DQ_ASSERT_OK(const GenerateResult result, engine->generate(r, control));
  EXPECT_EQ(result.images[0].image.pixels, plain.images[0].image.pixels) << "watching changed the picture";
  ASSERT_EQ(previews.size(), 4u);
  const auto distance = [&](const Image& p) {  // mean grey levels from the picture, block by block
    EXPECT_EQ(p.width, 16);
    double sum = 0;
    for (int i = 0; i < 256; ++i)
      for (int c = 0; c < 3; ++c) {
        double mean = 0;
        for (int k = 0; k < 64; ++k)
          mean += result.images[0]
                      .image.pixels[static_cast<size_t>(3 * ((i / 16 * 8 + k / 8) * 128 + i % 16 * 8 + k % 8) + c)] /
                  64.0;
        sum += std::fabs(mean - p.pixels[static_cast<size_t>(3 * i + c)]);
      }
    return sum / 768;
  };
  for (int i = 0; i < 4; ++i) EXPECT_EQ(previews[static_cast<size_t>(i)].first, 2 * i + 1);
  // Measured 20.3. The best linear map of this VAE is 18.8 away on average (models/danqing-mini/vae/latent_rgb.json), one
  // colour for the whole picture 60.8: half of that is still a picture that can be recognised.
  EXPECT_LT(distance(previews[3].second), 30);
  EXPECT_NE(previews[0].second.pixels, previews[3].second.pixels);
}

TEST(Preview, revised_prompts_are_drawn_and_recorded) {
  EngineOptions o;
  o.paths.model = testing::mini_model();
  DQ_ASSERT_OK(const auto engine, Engine::open(o));
  GenerateRequest r;
  r.prompts = {"a red apple"};
  r.seeds = {1};
  r.num_inference_steps = 2;
  r.width = r.height = 64;
  DQ_ASSERT_OK(const GenerateResult plain, engine->generate(r));
  r.prompts = {"apple"};
  r.revised_prompts = {"a red apple"};
  r.enhancer = EnhancerMode::on;  // done already: does not run again
  DQ_ASSERT_OK(const GenerateResult revised, engine->generate(r));
  EXPECT_EQ(revised.images[0].image.pixels, plain.images[0].image.pixels);
  EXPECT_EQ(revised.images[0].prompt, "apple");
  EXPECT_EQ(revised.images[0].revised_prompt, "a red apple");
  r.revised_prompts = {"a", "b"};
  const auto bad = engine->check(r);
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().code, ErrorCode::usage);
}

}  // namespace
}  // namespace danqing
