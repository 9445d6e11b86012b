// Every request is resolved or refused with one line that names the field.
#include "pipeline/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "pipeline/fake_family.h"

namespace danqing {
namespace {

using testing::FakeFamily;
using ::testing::HasSubstr;

GenerateRequest request() {
  GenerateRequest r;
  r.prompts = {"a"};
  r.seeds = {42};
  return r;
}

struct Bad {
  const char* field;
  void (*spoil)(GenerateRequest&);
};

TEST(Settings, refuses_each_wrong_field_by_name) {
  static const float kInf = std::numeric_limits<float>::infinity();
  const Bad cases[] = {
      {"[prompt]", [](GenerateRequest& r) { r.prompts.clear(); }},
      {"[prompt]", [](GenerateRequest& r) { r.prompts[0].assign(kMaxPromptBytes + 1, 'x'); }},
      {"[negative_prompt]",
       [](GenerateRequest& r) {
         r.negative_prompts = {"a", "b"};
       }},
      {"[size] width", [](GenerateRequest& r) { r.width = 100; }},
      {"[size] height", [](GenerateRequest& r) { r.height = 8; }},
      {"[size] width", [](GenerateRequest& r) { r.width = -16; }},
      {"[size] width", [](GenerateRequest& r) { r.width = kMaxSide + 16; }},
      {"[steps]", [](GenerateRequest& r) { r.num_inference_steps = -1; }},
      {"[steps]", [](GenerateRequest& r) { r.num_inference_steps = 100000; }},
      {"[guidance]", [](GenerateRequest& r) { r.guidance_scale = std::nanf(""); }},
      {"[guidance]", [](GenerateRequest& r) { r.guidance_scale = kInf; }},
      {"[shift]", [](GenerateRequest& r) { r.shift = 0.0f; }},
      {"[shift]", [](GenerateRequest& r) { r.shift = std::nanf(""); }},
      {"sampler", [](GenerateRequest& r) { r.sampler = "ddim"; }},
      {"[batch]", [](GenerateRequest& r) { r.images_per_prompt = 0; }},
      {"[batch]", [](GenerateRequest& r) { r.images_per_prompt = kMaxImages + 1; }},
      {"[batch_size]", [](GenerateRequest& r) { r.batch_size = -1; }},
      {"[seed]",
       [](GenerateRequest& r) {
         r.seeds = {1, 2};
       }},
      {"temperature", [](GenerateRequest& r) { r.enhancer = EnhancerMode::on, r.enhance.temperature = std::nanf(""); }},
      {"top_p", [](GenerateRequest& r) { r.enhancer = EnhancerMode::on, r.enhance.top_p = 0.0f; }},
      {"max_new_tokens", [](GenerateRequest& r) { r.enhancer = EnhancerMode::on, r.enhance.max_new_tokens = 0; }},
      {"[latents]", [](GenerateRequest& r) { r.latents.assign(3, 0.0f); }},
  };
  for (const Bad& c : cases) {
    FakeFamily family;
    GenerateRequest r = request();
    c.spoil(r);
    const auto s = resolve(r, family, true);
    ASSERT_FALSE(s.ok()) << c.field;
    EXPECT_EQ(s.error().code, ErrorCode::usage) << c.field;
    EXPECT_THAT(s.error().message, HasSubstr(c.field));
    EXPECT_EQ(s.error().message.find('\n'), std::string::npos);
  }
}

TEST(Settings, a_wrong_size_names_the_nearest_right_ones) {
  FakeFamily family;
  GenerateRequest r = request();
  r.width = 100;
  EXPECT_THAT(resolve(r, family, true).error().message, HasSubstr("96 or 112"));
}

TEST(Settings, the_enhancer_is_refused_where_there_is_none) {
  FakeFamily family;
  family.info_.has_prompt_enhancer = false;
  GenerateRequest r = request();
  r.enhancer = EnhancerMode::on;
  EXPECT_THAT(resolve(r, family, true).error().message, HasSubstr("no prompt enhancer"));
}

TEST(Settings, defaults_come_from_the_model) {
  FakeFamily family;
  const auto s = resolve(request(), family, true);
  ASSERT_TRUE(s.ok());
  EXPECT_EQ(s->width, 32);
  EXPECT_EQ(s->steps, 4);
  EXPECT_FLOAT_EQ(s->guidance_scale, 4.0f);
  EXPECT_FLOAT_EQ(s->shift, 3.0f);
  EXPECT_TRUE(s->guided);
  EXPECT_FALSE(s->enhance);
  EXPECT_EQ(s->batch_size, 1);
}

TEST(Settings, one_seed_counts_up_and_wraps) {
  FakeFamily family;
  GenerateRequest r = request();
  r.prompts = {"a", "b"};
  r.images_per_prompt = 2;
  r.seeds = {std::numeric_limits<uint64_t>::max() - 1};
  const auto s = resolve(r, family, true);
  ASSERT_TRUE(s.ok());
  EXPECT_EQ(s->seeds, (std::vector<uint64_t>{UINT64_MAX - 1, UINT64_MAX, 0, 1}));
}

TEST(Settings, says_what_has_no_effect) {
  FakeFamily family;
  GenerateRequest r = request();
  r.negative_prompts = {"blurry"};
  r.guidance_scale = 1.0f;
  const auto s = resolve(r, family, true);
  ASSERT_TRUE(s.ok());
  EXPECT_FALSE(s->guided);
  ASSERT_EQ(s->notes.size(), 1u);
  EXPECT_THAT(s->notes[0], HasSubstr("negative prompt has no effect"));
}

TEST(Settings, a_given_shift_replaces_the_schedulers) {
  FakeFamily family;
  GenerateRequest r = request();
  r.shift = 6.5f;
  const auto s = resolve(r, family, true);
  ASSERT_TRUE(s.ok());
  EXPECT_DOUBLE_EQ(s->scheduler.shift, 6.5);
}

}  // namespace
}  // namespace danqing
