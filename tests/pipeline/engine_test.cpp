// The public API on the mini model: threads, errors, the same picture from every way in.
#include "danqing/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <thread>

#include "testing/testing.h"

namespace danqing {
namespace {

using ::testing::HasSubstr;

EngineOptions mini() {
  EngineOptions o;
  o.paths.model = testing::mini_model();
  return o;
}

GenerateRequest small_request() {
  GenerateRequest r;
  r.prompts = {"a red apple"};
  r.seeds = {42};
  r.num_inference_steps = 2;
  r.width = r.height = 64;
  return r;
}

TEST(Engine, describes_the_model) {
  DQ_ASSERT_OK(const auto engine, Engine::open(mini()));
  const ModelInfo& info = engine->info();
  EXPECT_EQ(info.name, "danqing-mini");
  EXPECT_EQ(info.pipeline_class, "ErnieImagePipeline");
  EXPECT_EQ(info.defaults.width, 128);
  EXPECT_EQ(info.defaults.num_inference_steps, 20);
  EXPECT_TRUE(info.has_prompt_enhancer);
  EXPECT_FALSE(info.defaults.prompt_enhancer);
  EXPECT_EQ(info.components.size(), 4u);
}

TEST(Engine, several_threads_share_one_engine) {
  DQ_ASSERT_OK(const auto engine, Engine::open(mini()));
  DQ_ASSERT_OK(const auto expected, engine->generate(small_request()));
  std::atomic<int> equal{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&] {
      const auto r = engine->generate(small_request());
      if (r && r->images[0].image.pixels == expected.images[0].image.pixels) ++equal;
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(equal, 3);
}

TEST(Engine, the_thread_count_does_not_change_the_picture) {
  std::vector<std::vector<uint8_t>> pixels;
  for (const int threads : {1, 2, 3}) {
    EngineOptions o = mini();
    o.cpu.threads = threads;
    DQ_ASSERT_OK(const auto engine, Engine::open(o));
    DQ_ASSERT_OK(const auto r, engine->generate(small_request()));
    pixels.push_back(r.images[0].image.pixels);
  }
  EXPECT_EQ(pixels[0], pixels[1]);
  EXPECT_EQ(pixels[0], pixels[2]);
}

TEST(Engine, pictures_of_a_batch_have_the_bits_of_their_single_runs) {
  struct Way {
    std::filesystem::path model;
    ComputeType type;
    float guidance;
    const char* weights;
  };
  const std::filesystem::path z = testing::data("fixtures/zimage-tiny");
  for (const Way& way : {Way{testing::mini_model(), ComputeType::f32, 4, "stored"},
                         Way{testing::mini_model(), ComputeType::bf16, 0, "stored"},
                         Way{testing::mini_model(), ComputeType::bf16, 0, "q8_0"},
                         Way{testing::mini_model(), ComputeType::bf16, 4, "q4_K"},
                         Way{z, ComputeType::bf16, 0, "stored"}, Way{z, ComputeType::f32, 3, "stored"}}) {
    EngineOptions o = mini();
    o.paths.model = way.model;
    o.compute_type = way.type;
    o.memory.weight_type = way.weights;
    DQ_ASSERT_OK(const auto engine, Engine::open(o));
    GenerateRequest r = small_request();
    r.prompts = {"a cat", "a red house on a very green hill, with a river", "dog"};  // padded to the longest
    r.guidance_scale = way.guidance;
    r.batch_size = 1;
    DQ_ASSERT_OK(const auto single, engine->generate(r));
    r.batch_size = 3;
    DQ_ASSERT_OK(const auto together, engine->generate(r));
    for (size_t i = 0; i < 3; ++i)
      EXPECT_EQ(single.images[i].image.pixels, together.images[i].image.pixels) << way.model << way.weights << i;
  }
}

TEST(Engine, enhances_with_its_own_seed) {
  DQ_ASSERT_OK(const auto engine, Engine::open(mini()));
  EnhanceOptions o;
  o.seed = 3;
  o.max_new_tokens = 200;
  std::string streamed;
  RunControl control;
  control.on_progress = [&](const ProgressEvent& e) { streamed += e.text; };
  DQ_ASSERT_OK(const auto a, engine->enhance("一只猫", o, control));
  DQ_ASSERT_OK(const auto b, engine->enhance("一只猫", o));
  EXPECT_EQ(a.text, b.text);
  EXPECT_FALSE(a.text.empty());
  EXPECT_THAT(streamed, HasSubstr(a.text));
}

TEST(Engine, given_latents_replace_the_seed) {
  DQ_ASSERT_OK(const auto engine, Engine::open(mini()));
  std::vector<float> noise;
  RunControl control;
  control.dump = [&](const std::string& name, const std::vector<int64_t>&, const std::vector<float>& data) {
    if (name == "init_latents") noise = data;
  };
  DQ_ASSERT_OK(const auto a, engine->generate(small_request(), control));
  GenerateRequest r = small_request();
  r.seeds = {7};
  r.latents = noise;
  DQ_ASSERT_OK(const auto b, engine->generate(r));
  EXPECT_EQ(a.images[0].image.pixels, b.images[0].image.pixels);
}

TEST(Engine, a_wrong_model_is_one_clear_error) {
  EngineOptions o;
  o.paths.model = "/nowhere/at/all";
  EXPECT_EQ(Engine::open(o).error().code, ErrorCode::bad_input);
  testing::TempDir dir;
  std::ofstream(dir / "model_index.json") << R"({"_class_name": "StableDiffusionPipeline"})";
  o.paths.model = dir.path();
  const auto wrong = Engine::open(o);
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error().code, ErrorCode::bad_input);
  EXPECT_THAT(wrong.error().message, HasSubstr("ErnieImagePipeline"));
}

TEST(Engine, an_unknown_device_is_a_usage_error) {
  EngineOptions o = mini();
  o.device = "vulkan99";
  const auto r = Engine::open(o);
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code, ErrorCode::usage);
  EXPECT_THAT(r.error().message, HasSubstr("cpu"));
}

TEST(Engine, low_precision_stays_close) {
  // f32 and bf16 weights of the mini model round differently; the pictures may differ by a few levels, not in what they
  // show.
  DQ_ASSERT_OK(const auto exact, Engine::open(mini()));
  DQ_ASSERT_OK(const auto a, exact->generate(small_request()));
  EngineOptions o = mini();
  o.compute_type = ComputeType::bf16;
  DQ_ASSERT_OK(const auto rounded, Engine::open(o));
  DQ_ASSERT_OK(const auto b, rounded->generate(small_request()));
  double sum = 0;
  for (size_t i = 0; i < a.images[0].image.pixels.size(); ++i)
    sum += std::abs(a.images[0].image.pixels[i] - b.images[0].image.pixels[i]);
  EXPECT_LT(sum / static_cast<double>(a.images[0].image.pixels.size()), 8.0);  // mean levels
}

/// Mean squared difference of two pictures in levels of 255.
double mean_square(const Image& a, const Image& b) {
  double sum = 0;
  for (size_t i = 0; i < a.pixels.size(); ++i) {
    const double d = double(a.pixels[i]) - double(b.pixels[i]);
    sum += d * d;
  }
  return sum / static_cast<double>(a.pixels.size());
}

TEST(Engine, a_picture_to_start_from_is_kept_the_more_the_smaller_the_strength) {
  DQ_ASSERT_OK(const auto engine, Engine::open(mini()));
  GenerateRequest first = small_request();
  first.num_inference_steps = 20;
  first.width = first.height = 128;
  DQ_ASSERT_OK(const GenerateResult apple, engine->generate(first));
  GenerateRequest from = first;
  from.prompts = {"a sailboat"};
  from.seeds = {9};
  DQ_ASSERT_OK(const GenerateResult boat, engine->generate(from));
  from.width = from.height = 0;
  from.init_image = apple.images[0].image;
  double last = 0;
  for (const double strength : {0.1, 0.4, 0.8, 1.0}) {
    from.strength = strength;
    DQ_ASSERT_OK(const GenerateResult r, engine->generate(from));
    const auto& parts = r.plan.components;
    EXPECT_TRUE(std::any_of(parts.begin(), parts.end(), [](const auto& c) { return c.role == "vae_encoder"; }));
    const double distance = mean_square(r.images[0].image, apple.images[0].image);
    EXPECT_GT(distance, last) << strength;
    // The VAE's way there and back, and two steps that change little.
    if (strength == 0.1) {
      EXPECT_LT(distance, 300);
    }
    if (strength == 1.0) {
      EXPECT_EQ(r.images[0].image.pixels, boat.images[0].image.pixels);
    }
    last = distance;
  }
}

}  // namespace
}  // namespace danqing
