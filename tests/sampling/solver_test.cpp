#include <cmath>

#include "sampling/flow_match.h"
#include "testing/testing.h"

namespace danqing {
namespace {

using testing::golden;

// Every step of a recorded run: the raw network output of the golden goes in, the golden's next latents must come out.
void replay(const std::string& run, WorkType type, double tolerance) {
  const auto g = golden("ernie-tiny/golden/run_" + run);
  const Json& call = g.json.at("call");
  const auto guidance = call.at("guidance").get<float>();
  const int steps = call.at("steps").get<int>();
  const std::vector<float> sigmas = g.f32("sigmas").data;
  std::vector<float> latents = g.f32("init_latents").data;
  ASSERT_EQ(sigmas.size(), static_cast<size_t>(steps) + 1);
  for (int i = 0; i < steps; ++i) {
    const std::string step = "step." + std::to_string(i);
    const std::vector<float> out = g.f32(step + ".model_out").data, expected = g.f32(step + ".latents").data;
    ASSERT_EQ(latents.size(), expected.size());
    const size_t n = latents.size(), at = static_cast<size_t>(i);
    std::vector<float> prediction(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(n));
    if (guidance > 1) {
      ASSERT_EQ(out.size(), 2 * n);  // the unconditional half comes first
      guide(std::span(out).first(n), std::span(out).last(n), guidance, prediction, type);
    }
    euler_step(latents, prediction, sigmas[at], sigmas[at + 1], type);
    for (size_t k = 0; k < n; ++k) ASSERT_NEAR(latents[k], expected[k], tolerance) << run << " " << step << " at " << k;
    latents = expected;
  }
}

TEST(EulerStep, ReplaysEveryRunOfThePipeline) {
  for (const std::string run : {"cfg4", "cfg4_neg", "g1", "batch"}) {
    replay(run + "_f32", WorkType::f32, 0);    // the same operations in the same order: bit for bit as well
    replay(run + "_bf16", WorkType::bf16, 0);  // the roundings are rules: bit for bit
  }
}

TEST(EulerStep, RoundsEachOperationInHalfPrecision) {
  // sigma step -0.3 is not a bf16 or f16 number: the rounded one (-0.30078125, -0.30004883) must multiply 1.
  std::vector<float> x = {0.0f}, y = {0.0f};
  euler_step(x, std::vector<float>{1.0f}, 0.9f, 0.6f, WorkType::bf16);
  euler_step(y, std::vector<float>{1.0f}, 0.9f, 0.6f, WorkType::f16);
  EXPECT_EQ(x[0], -0.30078125f);
  EXPECT_EQ(y[0], round_f16(0.6f - 0.9f));
}

TEST(Guide, KeepsTheScaleInF32) {
  // 4.3 is no bf16 number (4.3125 is): bf16(4.3f * 64) = 276, bf16(4.3125 * 64) = 276; with 100: 430 against 432.
  std::vector<float> out(1);
  guide(std::vector<float>{0.0f}, std::vector<float>{100.0f}, 4.3f, out, WorkType::bf16);
  EXPECT_EQ(out[0], 430.0f);
  guide(std::vector<float>{1.0f}, std::vector<float>{3.0f}, 4.0f, out, WorkType::f32);
  EXPECT_EQ(out[0], 9.0f);
}

TEST(Guide, MayWriteIntoAnInput) {
  std::vector<float> uncond = {1, 2}, cond = {2, 0};
  guide(uncond, cond, 2.0f, cond, WorkType::f32);
  EXPECT_EQ(cond, (std::vector<float>{3, -2}));
}

TEST(Samplers, AreKnownByName) {
  for (const Sampler s : {Sampler::euler, Sampler::heun}) {
    DQ_ASSERT_OK(const Sampler parsed, parse_sampler(name(s)));
    EXPECT_EQ(parsed, s);
  }
  const auto r = parse_sampler("dpm++");
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code, ErrorCode::usage);
  EXPECT_NE(r.error().message.find("dpm++"), std::string::npos);
}

// dx/ds = x*cos(3s), x(1) = 1: x(0) = exp(-sin(3)/3).
double error_at_zero(Sampler sampler, int n) {
  auto s = make_schedule({}, n, SigmaSpacing::one_to_zero, 256);
  EXPECT_TRUE(s.ok());
  std::vector<float> x = {1.0f};
  SamplerCallbacks callbacks;
  callbacks.predict = [](std::span<const float> latents, float sigma) -> Result<std::vector<float>> {
    return std::vector<float>{latents[0] * std::cos(3 * sigma)};
  };
  EXPECT_TRUE(run_sampler(sampler, *s, x, WorkType::f32, callbacks).ok());
  return std::fabs(x[0] - std::exp(-std::sin(3.0) / 3));
}

TEST(Samplers, OrderOfConvergence) {
  // Halving the step divides the error by 2^order. Measured between 16, 32 and 64 steps, where the errors (1e-2 and
  // 1e-4) lie far above the f32 roundings (1e-6); the band of 0.3 holds the next term of the expansion.
  for (const int n : {16, 32}) {
    EXPECT_NEAR(std::log2(error_at_zero(Sampler::euler, n) / error_at_zero(Sampler::euler, 2 * n)), 1, 0.3) << n;
    EXPECT_NEAR(std::log2(error_at_zero(Sampler::heun, n) / error_at_zero(Sampler::heun, 2 * n)), 2, 0.3) << n;
  }
}

TEST(Samplers, HeunCallsTheNetworkTwiceButOnceAtTheEnd) {
  Schedule s{{1.0f, 0.5f, 0.0f}, {1000.0f, 500.0f}};
  std::vector<float> seen, x = {1.0f};
  std::vector<int> steps;
  SamplerCallbacks callbacks;
  callbacks.predict = [&](std::span<const float>, float sigma) -> Result<std::vector<float>> {
    seen.push_back(sigma);
    return std::vector<float>{1.0f};
  };
  callbacks.after_step = [&](int step, std::span<const float>) -> Result<void> {
    steps.push_back(step);
    return {};
  };
  ASSERT_TRUE(run_sampler(Sampler::heun, s, x, WorkType::f32, callbacks).ok());
  EXPECT_EQ(seen, (std::vector<float>{1.0f, 0.5f, 0.5f}));
  EXPECT_EQ(steps, (std::vector<int>{0, 1}));
  EXPECT_EQ(x[0], 0.0f);  // a constant slope is integrated exactly
}

TEST(Samplers, NoStepsLeaveTheLatentsAlone) {
  std::vector<float> x = {1.5f, -2.0f};
  SamplerCallbacks callbacks;
  callbacks.predict = [](std::span<const float>, float) -> Result<std::vector<float>> {
    return Error{ErrorCode::failed, "called"};
  };
  for (const Sampler s : {Sampler::euler, Sampler::heun})
    EXPECT_TRUE(run_sampler(s, {{0.0f}, {}}, x, WorkType::bf16, callbacks).ok());
  EXPECT_EQ(x, (std::vector<float>{1.5f, -2.0f}));
}

TEST(Samplers, ErrorsStopTheRun) {
  const Schedule s{{1.0f, 0.5f, 0.0f}, {1000.0f, 500.0f}};
  std::vector<float> x = {1.0f};
  SamplerCallbacks callbacks;
  const auto run = [&](const Schedule& schedule) {
    return run_sampler(Sampler::euler, schedule, x, WorkType::f32, callbacks);
  };
  EXPECT_FALSE(run(s).ok());  // no network
  callbacks.predict = [](std::span<const float> l, float) -> Result<std::vector<float>> {
    return std::vector<float>(l.size(), 1.0f);
  };
  EXPECT_EQ(run({{1.0f, std::nanf(""), 0.0f}, {}}).error().code, ErrorCode::usage);
  EXPECT_EQ(run({{HUGE_VALF, 0.0f}, {}}).error().code, ErrorCode::usage);
  EXPECT_EQ(run({}).error().code, ErrorCode::usage);
  int after = 0;
  callbacks.after_step = [&](int, std::span<const float>) -> Result<void> {
    ++after;
    return Error{ErrorCode::cancelled, "stop"};
  };
  EXPECT_EQ(run(s).error().code, ErrorCode::cancelled);
  EXPECT_EQ(after, 1);
  callbacks.predict = [](std::span<const float>, float) -> Result<std::vector<float>> {
    return std::vector<float>{1, 2};
  };
  EXPECT_NE(run(s).error().message.find("step 1: expected a prediction of 1 values, got 2"), std::string::npos);
  callbacks.predict = [](std::span<const float>, float) -> Result<std::vector<float>> {
    return std::vector<float>{NAN};
  };
  EXPECT_NE(run(s).error().message.find("NaN"), std::string::npos);
}

}  // namespace
}  // namespace danqing
