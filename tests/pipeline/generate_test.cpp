// The generation loop around a family whose prediction is known.
#include "pipeline/generate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "pipeline/fake_family.h"

namespace danqing {
namespace {

using ::testing::ElementsAre;
using testing::FakeFamily;
using ::testing::HasSubstr;

struct Scenario {
  FakeFamily family;
  FeatureCache cache;
  GenerateRequest request;
  RunControl control;
  Scenario() {
    request.prompts = {"a cat"};
    request.seeds = {42};
  }
  Result<GenerateResult> go() {
    auto s = resolve(request, family, true);
    if (!s) return s.error();
    auto device = Device::open("cpu");
    if (!device) return device.error();
    return generate(family, cache, request, *s, control, {*device, {}}, ComputeType::f32);
  }
};

TEST(Generate, batch_equals_single_runs) {
  Scenario four;
  four.request.images_per_prompt = 4;
  const auto together = four.go();
  ASSERT_TRUE(together.ok());
  ASSERT_EQ(together->images.size(), 4u);
  for (int i = 0; i < 4; ++i) {
    Scenario one;
    one.request.seeds = {42 + static_cast<uint64_t>(i)};
    const auto alone = one.go();
    ASSERT_TRUE(alone.ok());
    EXPECT_EQ(alone->images[0].image.pixels, together->images[static_cast<size_t>(i)].image.pixels) << i;
    EXPECT_EQ(together->images[static_cast<size_t>(i)].seed, 42u + static_cast<uint64_t>(i));
  }
}

TEST(Generate, batch_size_does_not_change_pictures) {
  Scenario a, b;
  a.request.images_per_prompt = b.request.images_per_prompt = 5;
  b.request.batch_size = 2;
  const auto x = a.go(), y = b.go();
  ASSERT_TRUE(x.ok() && y.ok());
  EXPECT_THAT(b.family.batches, ElementsAre(2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1));
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(x->images[i].image.pixels, y->images[i].image.pixels);
}

TEST(Generate, one_stream_starts_like_a_single_run_and_goes_on) {
  Scenario single, stream;
  stream.request.images_per_prompt = 2;
  stream.request.one_stream = true;
  const auto a = single.go(), b = stream.go();
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(a->images[0].image.pixels, b->images[0].image.pixels);
  Scenario next;
  next.request.seeds = {43};
  EXPECT_NE(next.go()->images[0].image.pixels, b->images[1].image.pixels);
}

TEST(Generate, texts_are_encoded_once_and_negatives_only_under_guidance) {
  Scenario r;
  r.request.images_per_prompt = 3;
  r.request.negative_prompts = {"blurry"};
  ASSERT_TRUE(r.go().ok());
  ASSERT_TRUE(r.go().ok());
  EXPECT_EQ(r.family.encoded["a cat"], 1);
  EXPECT_EQ(r.family.encoded["blurry"], 1);
  Scenario unguided;
  unguided.request.negative_prompts = {"blurry"};
  unguided.request.guidance_scale = 1.0f;
  ASSERT_TRUE(unguided.go().ok());
  EXPECT_EQ(unguided.family.encoded.count("blurry"), 0u);
}

TEST(Generate, zero_steps_decode_the_noise) {
  Scenario r;
  r.request.num_inference_steps = 0;
  const auto result = r.go();
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(r.family.predictions, 0);
  EXPECT_EQ(result->images.size(), 1u);
}

TEST(Generate, cancelling_keeps_finished_pictures) {
  Scenario r;
  r.request.images_per_prompt = 3;
  int finished = 0;
  r.control.on_image = [&](const GeneratedImage&) { ++finished; };
  r.control.cancelled = [&] { return finished == 1 && r.family.predictions >= 6; };
  const auto result = r.go();
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::cancelled);
  EXPECT_EQ(finished, 1);
  EXPECT_LE(r.family.predictions, 7);  // stopped within one step
}

TEST(Generate, nan_stops_the_run_and_names_the_step) {
  Scenario r;
  r.family.nan_at = 3;
  const auto result = r.go();
  ASSERT_FALSE(result.ok());
  EXPECT_THAT(result.error().message, HasSubstr("step 3 of 4"));
  EXPECT_THAT(result.error().message, HasSubstr("NaN first in layers.1"));
}

TEST(Generate, a_lost_device_is_reported_as_such) {
  Scenario r;
  r.family.fail_at = 2;
  EXPECT_EQ(r.go().error().code, ErrorCode::device_lost);
}

TEST(Generate, the_enhancer_gets_the_pictures_seed_and_its_text_is_used) {
  Scenario r;
  r.request.prompts = {"a", "b"};
  r.request.images_per_prompt = 2;
  r.request.enhancer = EnhancerMode::on;
  const auto result = r.go();
  ASSERT_TRUE(result.ok());
  EXPECT_THAT(r.family.enhancer_seeds, ElementsAre(42u, 44u));
  EXPECT_EQ(result->images[0].revised_prompt, "a, in detail");
  EXPECT_EQ(result->images[0].prompt, "a");
  EXPECT_EQ(r.family.encoded["b, in detail"], 1);
}

TEST(Generate, a_mute_or_cut_enhancer_is_said) {
  Scenario r;
  r.request.enhancer = EnhancerMode::on;
  r.family.enhancer_is_mute = r.family.enhancer_hits_limit = true;
  const auto result = r.go();
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->images[0].revised_prompt, "a cat");
  ASSERT_EQ(result->notes.size(), 2u);
  EXPECT_THAT(result->notes[0], HasSubstr("limit"));
  EXPECT_THAT(result->notes[1], HasSubstr("used as given"));
}

TEST(Generate, metadata_can_make_the_picture_again) {
  Scenario r;
  r.request.prompts = {"夜空下的一只猫"};
  r.request.negative_prompts = {"snow"};
  const auto result = r.go();
  ASSERT_TRUE(result.ok());
  const ImageMetadata& m = result->images[0].metadata;
  EXPECT_THAT(m.at("parameters"),
              HasSubstr("夜空下的一只猫\nNegative prompt: snow\nSteps: 4, Sampler: Euler, CFG scale: 4, Seed: 42, "
                        "Size: 32x32, Model: fake, Shift: 3"));
  const auto j = parse_json(m.at("danqing"), "metadata");
  ASSERT_TRUE(j.ok());
  EXPECT_EQ((*j)["prompt"].get<std::string>(), "夜空下的一只猫");
  EXPECT_EQ((*j)["seed"].get<uint64_t>(), 42u);
  EXPECT_EQ((*j)["num_inference_steps"].get<int>(), 4);
}

TEST(Generate, dump_names_are_those_of_the_goldens) {
  Scenario r;
  r.request.num_inference_steps = 2;
  std::vector<std::string> names;
  r.control.dump = [&](const std::string& name, const std::vector<int64_t>&, const std::vector<float>&) {
    names.push_back(name);
  };
  ASSERT_TRUE(r.go().ok());
  EXPECT_THAT(names, ElementsAre("init_latents", "sigmas", "timesteps", "step.0.latents", "step.1.latents",
                                 "final_latents", "decoded"));
}

TEST(Generate, progress_counts_steps_and_pictures) {
  Scenario r;
  r.request.images_per_prompt = 2;
  std::vector<std::pair<int, int>> steps;
  r.control.on_progress = [&](const ProgressEvent& e) {
    EXPECT_EQ(e.images, 2);
    if (e.stage == Stage::denoise) steps.emplace_back(e.image, e.step);
  };
  ASSERT_TRUE(r.go().ok());
  EXPECT_EQ(steps.size(), 10u);
  EXPECT_EQ(steps.front(), std::pair(0, 0));
  EXPECT_EQ(steps.back(), std::pair(1, 4));
}

}  // namespace
}  // namespace danqing
