// The generation loop around a family whose prediction is known.
#include "pipeline/generate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/json.h"
#include "pipeline/fake_family.h"
#include "testing/testing.h"

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

/// A picture of one colour, 64 x 48.
Image grey(uint8_t level) { return {64, 48, std::vector<uint8_t>(size_t{3} * 64 * 48, level)}; }

/// What the denoiser starts from, by picture.
std::map<std::string, std::vector<float>> starts_of(Scenario& s) {
  std::map<std::string, std::vector<float>> out;
  s.control.dump = [&](const std::string& name, const Shape&, const std::vector<float>& values) {
    if (name.ends_with("init_latents")) out[name] = values;
  };
  const auto r = s.go();
  EXPECT_TRUE(r.ok()) << (r.ok() ? "" : r.error().message);
  s.control.dump = nullptr;
  return out;
}

TEST(ImageToImage, noise_lies_over_the_picture_at_the_sigma_of_the_first_step) {
  Scenario plain, from;
  plain.request.width = from.request.width = 64, plain.request.height = from.request.height = 48;
  plain.request.num_inference_steps = from.request.num_inference_steps = 5;
  plain.request.shift = from.request.shift = 1.0f;
  from.request.init_image = grey(255);  // 1 in all latents
  from.request.strength = 0.6;          // 0.6 as f32 would leave four steps of the five
  const auto noise = starts_of(plain).at("init_latents"), mixed = starts_of(from).at("init_latents");
  EXPECT_EQ(from.family.predictions, 3);
  const float sigma = 0.6f;  // of 1, 0.8, 0.6, ...
  ASSERT_EQ(noise.size(), mixed.size());
  for (size_t i = 0; i < noise.size(); ++i) EXPECT_NEAR(mixed[i], sigma * noise[i] + (1 - sigma), 1e-6);
}

TEST(ImageToImage, each_picture_is_its_single_run_and_the_given_one_is_encoded_once) {
  Scenario three;
  three.family.samples = true;  // a sample of the VAE's is drawn before the noise
  three.request.images_per_prompt = 3;
  three.request.init_image = grey(40);
  const auto together = starts_of(three);
  EXPECT_EQ(three.family.encoded_images, 1);
  for (uint64_t i = 0; i < 3; ++i) {
    Scenario one;
    one.family.samples = true;
    one.request.seeds = {42 + i};
    one.request.init_image = grey(40);
    EXPECT_EQ(starts_of(one).at("init_latents"), together.at(fmt::format("image.{}.init_latents", i))) << i;
  }
  Scenario stream;  // one generator: one sample, then the noise of all
  stream.family.samples = true;
  stream.request.images_per_prompt = 3;
  stream.request.one_stream = true;
  stream.request.init_image = grey(40);
  const auto streamed = starts_of(stream);
  EXPECT_NE(streamed.at("image.1.init_latents"), together.at("image.1.init_latents"));
}

TEST(ImageToImage, the_whole_schedule_from_a_picture_is_the_run_from_noise) {
  Scenario plain, from;
  from.request.init_image = grey(10);
  from.request.strength = 1;
  plain.request.width = 64, plain.request.height = 48;
  EXPECT_EQ(starts_of(plain), starts_of(from));
}

TEST(ImageToImage, however_small_the_strength_one_step_is_left) {
  Scenario s;
  s.request.init_image = grey(1);
  s.request.num_inference_steps = 5;
  s.request.strength = 1e-9;
  DQ_ASSERT_OK(const GenerateResult r, s.go());
  EXPECT_EQ(s.family.predictions, 1);
  EXPECT_EQ(r.num_inference_steps, 5);
}

TEST(ImageToImage, sizes_come_from_the_picture_and_what_was_scaled_is_said) {
  Scenario s;
  s.request.init_image = {70, 50, std::vector<uint8_t>(size_t{3} * 70 * 50, 1)};
  DQ_ASSERT_OK(const GenerateResult r, s.go());
  EXPECT_EQ(r.width, 64);
  EXPECT_EQ(r.height, 48);
  EXPECT_THAT(r.notes, ::testing::Contains(HasSubstr("scaled from 70x50 to 64x48")));
  EXPECT_THAT(r.images[0].metadata.at("parameters"), HasSubstr("Denoising strength: 0.6"));
  s.request.width = 128, s.request.height = 32;
  DQ_ASSERT_OK(const GenerateResult wide, s.go());
  EXPECT_EQ(wide.images[0].image.width, 128);
}

TEST(ImageToImage, wrong_requests_are_named) {
  const auto refused = [](auto change, const char* words) {
    Scenario s;
    s.request.init_image = grey(1);
    s.request.num_inference_steps = 5;
    change(s);
    const auto r = s.go();
    ASSERT_FALSE(r.ok()) << words;
    EXPECT_EQ(r.error().code, ErrorCode::usage);
    EXPECT_THAT(r.error().message, HasSubstr(words));
  };
  refused([](Scenario& s) { s.request.strength = 0; }, "[strength]");
  refused([](Scenario& s) { s.request.strength = 1.01; }, "[strength]");
  refused([](Scenario& s) { s.request.strength = NAN; }, "[strength]");
  refused([](Scenario& s) { s.request.num_inference_steps = 0; }, "[steps] expected 1 or more");
  refused([](Scenario& s) { s.request.init_image.pixels.pop_back(); }, "[init_image] expected 3*width*height");
  refused([](Scenario& s) { s.request.init_image.width = 0; }, "[init_image]");
  refused([](Scenario& s) { s.request.latents.assign(8 * 3 * 4, 0.0f); }, "got both");
  refused([](Scenario& s) { s.family.with_encoder = false; }, "no encoder");
}

TEST(ImageToImage, stops_before_and_after_the_picture_is_encoded) {
  for (int calls = 0; calls < 3; ++calls) {
    Scenario s;
    s.request.init_image = grey(1);
    int left = calls;
    s.control.cancelled = [&] { return left-- <= 0; };
    const auto r = s.go();
    ASSERT_FALSE(r.ok());
    EXPECT_EQ(r.error().code, ErrorCode::cancelled);
  }
}

}  // namespace
}  // namespace danqing
