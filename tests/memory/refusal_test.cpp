// A device that refuses memory although the plan counted on it: the run goes on under the next smaller plan, once, and
// says so; nothing is left behind.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pipeline/generate.h"
#include "testing/testing.h"

namespace danqing {
namespace {

struct Opened {
  std::shared_ptr<Device> device;
  std::unique_ptr<ModelFamily> family;
};

Result<Opened> open(const std::string& fixture) {
  Opened s;
  auto device = Device::open("cpu");
  if (!device) return device.error();
  s.device = *device;
  auto checkpoint = open_checkpoint({.model = testing::data("fixtures/" + fixture)});
  if (!checkpoint) return checkpoint.error();
  for (const FamilyEntry& f : families())
    if (f.pipeline_class == checkpoint->pipeline_class) {
      auto family = f.make({s.device, *checkpoint, ComputeType::f32});
      if (!family) return family.error();
      s.family = std::move(*family);
    }
  return s;
}

Result<GenerateResult> draw(Opened& s, const MemoryOptions& memory) {
  GenerateRequest r;
  r.prompts = {"a cat"};
  r.seeds = {3};
  r.width = r.height = 64;
  r.num_inference_steps = 1;
  r.enhancer = EnhancerMode::off;
  auto settings = resolve(r, *s.family, true);
  if (!settings) return settings.error();
  FeatureCache cache;
  return generate(*s.family, cache, r, *settings, {}, {s.device, memory}, ComputeType::f32);
}

class Refusal : public ::testing::TestWithParam<const char*> {};

TEST_P(Refusal, AtAnyAllocationTheNextSmallerPlanIsTriedOnce) {
  DQ_ASSERT_OK(Opened calm, open(GetParam()));
  DQ_ASSERT_OK(const GenerateResult want, draw(calm, {}));
  int refused = 0, went_on = 0;
  for (int k = 1; k < 200; ++k) {
    DQ_ASSERT_OK(Opened s, open(GetParam()));
    s.device->fail_allocation(k);
    const auto r = draw(s, {});
    s.device->fail_allocation(0);
    if (r && r->plan.mode == want.plan.mode) break;  // the run has fewer allocations than k
    ++refused;
    if (r) {
      ++went_on;
      EXPECT_EQ(r->images[0].image.pixels, want.images[0].image.pixels) << k;
      EXPECT_THAT(r->notes, ::testing::Contains(::testing::HasSubstr("went on with less"))) << k;
      EXPECT_LT(r->plan.device_peak, want.plan.device_peak);
    } else {
      EXPECT_EQ(r.error().code, ErrorCode::does_not_fit) << k << r.error().message;
    }
    for (const memory::Part p : memory::kParts)
      if (ComponentSlot* slot = s.family->slot(p)) slot->drop();
    EXPECT_EQ(s.device->allocated(), 0u) << k;
  }
  EXPECT_GE(refused, 5);
  EXPECT_EQ(went_on, refused);  // a single refusal never ends a run that can go on with less
}

INSTANTIATE_TEST_SUITE_P(Models, Refusal, ::testing::Values("ernie-tiny", "zimage-tiny"));

TEST(Refusals, AgainAndAgainIsAnError) {
  DQ_ASSERT_OK(Opened s, open("zimage-tiny"));
  DQ_ASSERT_OK(const GenerateResult want, draw(s, {}));
  for (const memory::Part p : memory::kParts)
    if (ComponentSlot* slot = s.family->slot(p)) slot->drop();
  s.device->set_limit(want.plan.device_peak / 50);  // says it has more than it gives
  const auto r = draw(s, {});
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code, ErrorCode::does_not_fit);
}

}  // namespace
}  // namespace danqing
