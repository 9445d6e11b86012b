// The engine keeps its word: over many models, sizes, batches and budgets the device memory in use stays below what was
// planned, the plan is at most 5 % above it, and the picture is the one that unlimited memory gives.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/file.h"
#include "danqing/engine.h"
#include "testing/testing.h"

namespace danqing {
namespace {

using ::testing::HasSubstr;

struct Case {
  std::string model;
  ComputeType type;
  int width, height, pictures, batch;
  bool guided;
  bool from_image = false;
};

std::string text_of(const Case& c) {
  return fmt::format("{} {} {}x{} {} pictures, batch {}{}", c.model, static_cast<int>(c.type), c.width, c.height,
                     c.pictures, c.batch, c.guided ? ", guided" : "") +
         (c.from_image ? ", from a picture" : "");
}

std::filesystem::path path_of(const std::string& model) {
  return model == "mini" ? testing::mini_model() : testing::data("fixtures/" + model);
}

Result<GenerateResult> draw(const Case& c, const MemoryOptions& memory) {
  EngineOptions o;
  o.paths.model = path_of(c.model);
  o.device = "cpu";
  o.compute_type = c.type;
  o.memory = memory;
  auto engine = Engine::open(o);
  if (!engine) return engine.error();
  GenerateRequest r;
  r.prompts = {"a red apple on a table", "a cat"};
  r.prompts.resize(static_cast<size_t>(std::min(c.pictures, 2)));
  r.images_per_prompt = std::max(1, c.pictures / 2);
  r.seeds = {7};
  r.num_inference_steps = 1;
  if (c.from_image) {
    r.init_image = {c.width, c.height, std::vector<uint8_t>(static_cast<size_t>(3 * c.width * c.height), 90)};
    r.strength = 1;
  }
  r.guidance_scale = c.guided ? 3.0f : 0.0f;
  r.width = c.width, r.height = c.height, r.batch_size = c.batch;
  r.enhancer = EnhancerMode::off;
  return (*engine)->generate(r);
}

/// How far two pictures are apart, in levels of 255.
int distance(const GenerateResult& a, const GenerateResult& b) {
  int most = 0;
  for (size_t i = 0; i < a.images.size(); ++i)
    for (size_t k = 0; k < a.images[i].image.pixels.size(); ++k)
      most = std::max(most, std::abs(int(a.images[i].image.pixels[k]) - int(b.images[i].image.pixels[k])));
  return most;
}

class Grid : public ::testing::TestWithParam<Case> {};

TEST_P(Grid, keeps_to_every_budget_and_draws_the_same) {
  const Case& c = GetParam();
  DQ_ASSERT_OK(const GenerateResult all, draw(c, {}));
  EXPECT_EQ(all.plan.mode, "whole");
  ASSERT_LE(all.device_peak, all.plan.device_peak);
  ASSERT_GE(static_cast<double>(all.device_peak) * 1.05, static_cast<double>(all.plan.device_peak));
  int ran = 0;
  std::map<std::string, int> modes;
  for (const double share : {1.0, 0.97, 0.85, 0.7, 0.6, 0.5, 0.42, 0.35, 0.25}) {
    MemoryOptions m;
    m.device_memory = static_cast<uint64_t>(share * static_cast<double>(all.plan.device_peak)) + 1;
    m.reserve = 0;
    m.weight_type = "stored";
    const auto r = draw(c, m);
    if (!r) {
      EXPECT_EQ(r.error().code, ErrorCode::does_not_fit) << r.error().message;
      EXPECT_THAT(r.error().message, HasSubstr("--device-memory"));
      continue;
    }
    ++ran;
    ++modes[r->plan.mode];
    SCOPED_TRACE(fmt::format("{}: {} of {}: {}, tile {}, batch {}", text_of(c), m.device_memory, all.plan.device_peak,
                             r->plan.mode, r->plan.vae_tile, r->plan.batch_size));
    EXPECT_LE(r->device_peak, m.device_memory);
    EXPECT_LE(r->device_peak, r->plan.device_peak);
    EXPECT_GE(static_cast<double>(r->device_peak) * 1.05, static_cast<double>(r->plan.device_peak));
    // Tiles change the order of some sums, by rounding: one level where a value lies at a boundary.
    EXPECT_LE(distance(*r, all), r->plan.vae_tile ? 1 : 0);
  }
  EXPECT_GE(ran, 5);  // twelve cases: at least fifty budgets that hold
  EXPECT_GE(modes["component offload"] + modes["layer streaming"], 1);
}

INSTANTIATE_TEST_SUITE_P(Models, Grid,
                         ::testing::Values(Case{"mini", ComputeType::f32, 64, 64, 1, 1, true},
                                           Case{"mini", ComputeType::f32, 128, 96, 4, 2, true},
                                           Case{"mini", ComputeType::bf16, 128, 128, 1, 1, true},
                                           Case{"mini", ComputeType::bf16, 64, 128, 2, 2, false},
                                           Case{"ernie-tiny", ComputeType::f32, 64, 64, 1, 1, true},
                                           Case{"ernie-tiny", ComputeType::bf16, 128, 64, 3, 3, true},
                                           Case{"ernie-tiny", ComputeType::f16, 96, 96, 2, 1, false},
                                           Case{"zimage-tiny", ComputeType::f32, 64, 64, 1, 1, false},
                                           Case{"zimage-tiny", ComputeType::bf16, 128, 64, 2, 2, true},
                                           Case{"zimage-tiny", ComputeType::f16, 96, 96, 3, 3, true},
                                           Case{"mini", ComputeType::f32, 128, 64, 1, 1, true, true},
                                           Case{"zimage-tiny", ComputeType::bf16, 96, 128, 2, 1, false, true}));

TEST(Plan, says_what_the_enhancer_takes_and_keeps_to_it) {
  EngineOptions o;
  o.paths.model = testing::mini_model();
  o.device = "cpu";
  o.compute_type = ComputeType::f32;
  DQ_ASSERT_OK(const auto engine, Engine::open(o));
  GenerateRequest r;
  r.prompts = {"a cat"};
  r.seeds = {1};
  r.num_inference_steps = 1;
  r.width = r.height = 64;
  r.enhancer = EnhancerMode::on;
  r.enhance.max_new_tokens = 40;
  DQ_ASSERT_OK(const MemoryPlan before, engine->plan(r));
  ASSERT_EQ(before.components.size(), 4u);
  EXPECT_EQ(before.components[0].role, "pe");
  DQ_ASSERT_OK(const GenerateResult done, engine->generate(r));
  EXPECT_LE(done.device_peak, before.device_peak);
}

TEST(Plan, a_forced_way_is_taken) {
  const Case c{"mini", ComputeType::f32, 64, 64, 1, 1, true};
  DQ_ASSERT_OK(const GenerateResult all, draw(c, {}));
  for (const auto& [offload, mode] :
       {std::pair{Offload::component, "component offload"}, std::pair{Offload::stream, "layer streaming"},
        std::pair{Offload::none, "whole"}}) {
    MemoryOptions m;
    m.offload = offload;
    DQ_ASSERT_OK(const GenerateResult r, draw(c, m));
    EXPECT_EQ(r.plan.mode, mode);
    EXPECT_EQ(r.images[0].image.pixels, all.images[0].image.pixels) << mode;
    EXPECT_LE(r.device_peak, r.plan.device_peak);
  }
  MemoryOptions tiles;
  tiles.vae_tiling = VaeTiling::on;
  DQ_ASSERT_OK(const GenerateResult r, draw(c, tiles));
  EXPECT_GT(r.plan.vae_tile, 0);
  EXPECT_LE(distance(r, all), 1);
}

TEST(Plan, quantises_while_loading_when_asked) {
  const Case c{"mini", ComputeType::bf16, 64, 64, 1, 1, false};
  MemoryOptions m;
  m.weight_type = "q8_0";
  DQ_ASSERT_OK(const GenerateResult r, draw(c, m));
  DQ_ASSERT_OK(const GenerateResult stored, draw(c, {}));
  EXPECT_LT(r.plan.components[1].weight_bytes, stored.plan.components[1].weight_bytes * 3 / 4);
  EXPECT_FALSE(r.plan.notes.empty());
  m.weight_type = "q9_9";
  const auto bad = draw(c, m);
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.error().code, ErrorCode::usage);
}

}  // namespace
}  // namespace danqing
