#include <cmath>

#include "sampling/flow_match.h"
#include "sampling/sigma_spacing.h"
#include "testing/testing.h"

namespace danqing {
namespace {

using testing::golden;

void expect_equal(const std::vector<float>& got, const std::vector<float>& expected, const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], expected[i]) << what << " at " << i;
}

// 1 ulp of f32 for values of up to 1: for what numpy and scipy computed in f64 with other libraries' exp and pow.
void expect_ulp(const std::vector<float>& got, const std::vector<float>& expected, const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 6e-8) << what << " at " << i;
}

FlowMatchConfig shifted(double shift) {
  FlowMatchConfig c;
  c.shift = shift;
  return c;
}

std::vector<float> sigmas_of(const FlowMatchConfig& c, int n, SigmaSpacing spacing, int64_t tokens = 256,
                             std::vector<float> given = {}) {
  auto s = make_schedule(c, n, spacing, tokens, given);
  EXPECT_TRUE(s.ok()) << (s.ok() ? "" : s.error().message);
  return s.ok() ? s->sigmas : std::vector<float>();
}

TEST(Schedule, EqualsDiffusersForErnieImage) {
  const auto g = golden("ernie-tiny/golden/scheduler");
  for (const int shift : {1, 3, 4})
    for (const int n : {1, 2, 4, 8, 20, 28, 50}) {
      const std::string name = "shift" + std::to_string(shift) + ".n" + std::to_string(n);
      DQ_ASSERT_OK(const Schedule s, make_schedule(shifted(shift), n, SigmaSpacing::one_to_zero, 256));
      expect_equal(s.sigmas, g.f32(name + ".sigmas").data, name);
      expect_equal(s.timesteps, g.f32(name + ".timesteps").data, name);
      const std::vector<float> rounded = g.f32(name + ".timesteps_as_bf16").data;
      for (size_t i = 0; i < rounded.size(); ++i) EXPECT_EQ(timestep_as(s.timesteps[i], WorkType::bf16), rounded[i]);
    }
}

TEST(Schedule, EqualsDiffusersForZImage) {
  // FlowMatchEulerDiscreteScheduler of diffusers 0.42.1 with the sigmas of its Z-Image pipeline.
  expect_equal(sigmas_of(shifted(6), 20, SigmaSpacing::one_to_inverse_n),
               {1.0f,      0.99130434f, 0.98181814f, 0.97142863f, 0.96000004f, 0.94736844f, 0.9333333f,
                0.917647f, 0.90000004f, 0.88000005f, 0.85714287f, 0.83076924f, 0.8f,        0.76363635f,
                0.72f,     0.6666667f,  0.6f,        0.51428574f, 0.4f,        0.24000001f, 0.0f},
               "shift 6");
  FlowMatchConfig dynamic;
  dynamic.use_dynamic_shifting = true;
  expect_equal(
      sigmas_of(dynamic, 9, SigmaSpacing::one_to_inverse_n, 1024),
      {1.0f, 0.9375814f, 0.86792815f, 0.7897048f, 0.7012262f, 0.60033387f, 0.48421842f, 0.3491533f, 0.19008753f, 0.0f},
      "1024 tokens");
  expect_equal(
      sigmas_of(dynamic, 9, SigmaSpacing::one_to_inverse_n, 16384),
      {1.0f, 0.99507964f, 0.9888241f, 0.9806049f, 0.96932477f, 0.95288295f, 0.9266853f, 0.8783863f, 0.759613f, 0.0f},
      "16384 tokens");
}

TEST(Schedule, DynamicShiftIsLinearInTheTokens) {
  const FlowMatchConfig c;
  EXPECT_DOUBLE_EQ(dynamic_shift_mu(c, 256), 0.5);
  EXPECT_DOUBLE_EQ(dynamic_shift_mu(c, 4096), 1.15);
  EXPECT_DOUBLE_EQ(dynamic_shift_mu(c, 1024), 0.63);
  EXPECT_DOUBLE_EQ(dynamic_shift_mu(c, 12), 0.45869791666666665);
}

TEST(Schedule, LinearTimeShift) {
  FlowMatchConfig c;
  c.use_dynamic_shifting = true;
  c.exponential_time_shift = false;
  // mu/(mu + 1/s - 1) by numpy for mu = 0.63
  expect_ulp(sigmas_of(c, 4, SigmaSpacing::one_to_zero, 1024),
             {1.0f, 0.6539791822433472f, 0.38650307059288025f, 0.1735537052154541f, 0.0f}, "linear");
}

TEST(Schedule, StretchesToTheTerminalSigma) {
  FlowMatchConfig c = shifted(3);
  c.shift_terminal = 0.1;  // expected values by numpy in f32
  expect_equal(sigmas_of(c, 4, SigmaSpacing::one_to_zero),
               {1.0f, 0.8199999332427979f, 0.550000011920929f, 0.10000002384185791f, 0.0f}, "terminal 0.1");
  c.shift_terminal = 0;  // diffusers takes 0 for "not set"
  expect_equal(sigmas_of(c, 4, SigmaSpacing::one_to_zero), {1.0f, 0.9f, 0.75f, 0.5f, 0.0f}, "terminal 0");
}

TEST(Schedule, OtherSpacings) {
  FlowMatchConfig karras = shifted(3), exponential = shifted(3), beta = shifted(3);
  karras.use_karras_sigmas = exponential.use_exponential_sigmas = beta.use_beta_sigmas = true;
  // numpy and scipy.stats.beta.ppf between sigma 1 and 0.5, in f64 and then f32
  expect_ulp(sigmas_of(karras, 4, SigmaSpacing::one_to_zero),
             {1.0f, 0.7997078895568848f, 0.6348350048065186f, 0.5f, 0.0f}, "karras");
  expect_ulp(sigmas_of(exponential, 4, SigmaSpacing::one_to_zero),
             {1.0f, 0.7937005162239075f, 0.6299605369567871f, 0.5f, 0.0f}, "exponential");
  expect_ulp(sigmas_of(beta, 4, SigmaSpacing::one_to_zero),
             {1.0f, 0.8622933626174927f, 0.6377066373825073f, 0.5f, 0.0f}, "beta");
  expect_ulp(sigmas_of(beta, 1, SigmaSpacing::one_to_zero), {1.0f, 0.0f}, "one step");
}

TEST(Schedule, BetaQuantiles) {
  struct Case {
    double p, a, b, x;
  };
  for (const Case& c : {Case{1e-6, 0.6, 0.6, 1.8558824624053043e-10}, Case{1e-3, 0.6, 0.6, 1.855873851745199e-05},
                        Case{0.1, 0.6, 0.6, 0.03958440558878085}, Case{0.3, 0.6, 0.6, 0.23401700387523572},
                        Case{0.5, 0.6, 0.6, 0.5}, Case{0.999, 0.6, 0.6, 0.9999814412614826},
                        Case{0.1, 2, 5, 0.09259525891312873}, Case{0.9, 2, 5, 0.5103163065514917}})
    // scipy's values; 1e-14 absolute is what bisection of a CDF good to a few ulps of f64 gives
    EXPECT_NEAR(beta_quantile(c.p, c.a, c.b), c.x, 1e-14) << c.p << " " << c.a << " " << c.b;
  EXPECT_EQ(beta_quantile(0, 0.6, 0.6), 0);
  EXPECT_EQ(beta_quantile(1, 0.6, 0.6), 1);
}

TEST(Schedule, InvertedAndGivenSigmas) {
  FlowMatchConfig c;
  c.invert_sigmas = true;
  DQ_ASSERT_OK(const Schedule s, make_schedule(c, 4, SigmaSpacing::one_to_zero, 256));
  expect_equal(s.sigmas, {0.0f, 0.25f, 0.5f, 0.75f, 1.0f}, "inverted");
  expect_equal(s.timesteps, {0.0f, 250.0f, 500.0f, 750.0f}, "inverted timesteps");
  expect_equal(sigmas_of(shifted(3), 2, SigmaSpacing::one_to_zero, 256, {1.0f, 0.5f}), {1.0f, 0.75f, 0.0f}, "given");
}

TEST(Schedule, CountsOfSteps) {
  DQ_ASSERT_OK(const Schedule none, make_schedule(shifted(4), 0, SigmaSpacing::one_to_zero, 256));
  expect_equal(none.sigmas, {0.0f}, "no steps");
  EXPECT_TRUE(none.timesteps.empty());
  EXPECT_TRUE(make_schedule(shifted(4), 10000, SigmaSpacing::one_to_inverse_n, 256).ok());
  for (const int n : {-1, 10001, INT32_MIN, INT32_MAX}) {
    const auto r = make_schedule(shifted(4), n, SigmaSpacing::one_to_zero, 256);
    ASSERT_FALSE(r.ok());
    EXPECT_EQ(r.error().code, ErrorCode::usage);
  }
}

TEST(Schedule, RefusesWhatHasNoResult) {
  const auto refused = [](FlowMatchConfig c, int64_t tokens, std::vector<float> given = {}) {
    const auto r = make_schedule(c, 2, SigmaSpacing::one_to_zero, tokens, given);
    return !r.ok() && r.error().code == ErrorCode::usage && r.error().message.rfind("[scheduler] ", 0) == 0;
  };
  for (const double shift : {0.0, -1.0, std::nan(""), HUGE_VAL}) EXPECT_TRUE(refused(shifted(shift), 256)) << shift;
  for (const float s : {0.0f, -0.5f, 1.5f, std::nanf("")}) EXPECT_TRUE(refused({}, 256, {1.0f, s})) << s;
  EXPECT_TRUE(refused({}, 256, {1.0f}));  // one sigma for two steps
  FlowMatchConfig c;
  c.use_dynamic_shifting = true;
  EXPECT_TRUE(refused(c, int64_t{1} << 40));  // exp(mu) overflows
  c.max_image_seq_len = c.base_image_seq_len;
  EXPECT_TRUE(refused(c, 256));
  FlowMatchConfig two;
  two.use_beta_sigmas = two.use_karras_sigmas = true;
  EXPECT_TRUE(refused(two, 256));
}

TEST(FlowMatchConfig, ReadsTheFileOfAPipeline) {
  DQ_ASSERT_OK(const Json j, read_json(testing::data("fixtures/ernie-tiny") / "scheduler/scheduler_config.json"));
  DQ_ASSERT_OK(const FlowMatchConfig c, FlowMatchConfig::parse(j, "scheduler_config.json"));
  EXPECT_EQ(c.shift, 4.0);
  EXPECT_EQ(c.num_train_timesteps, 1000);
  EXPECT_FALSE(c.use_dynamic_shifting);
  EXPECT_FALSE(c.shift_terminal.has_value());
}

TEST(FlowMatchConfig, ErrorsNameFileAndField) {
  struct Case {
    const char* json;
    const char* says;
  };
  for (
      const Case& c : {
          Case{R"([])", "f.json"},
          Case{R"({})", "_class_name"},
          Case{R"({"_class_name": "DDIMScheduler"})", "DDIMScheduler"},
          Case{R"({"_class_name": "FlowMatchEulerDiscreteScheduler", "shift": "3"})", "shift"},
          Case{R"({"_class_name": "FlowMatchEulerDiscreteScheduler", "shift": -3})", "shift"},
          Case{R"({"_class_name": "FlowMatchEulerDiscreteScheduler", "shift_terminal": 1})", "shift_terminal"},
          Case{R"({"_class_name": "FlowMatchEulerDiscreteScheduler", "num_train_timesteps": 0})",
               "num_train_timesteps"},
          Case{R"({"_class_name": "FlowMatchEulerDiscreteScheduler", "time_shift_type": "cubic"})", "cubic"},
          Case{R"({"_class_name": "FlowMatchEulerDiscreteScheduler", "stochastic_sampling": true})",
               "stochastic_sampling"},
          Case{
              R"({"_class_name": "FlowMatchEulerDiscreteScheduler", "use_beta_sigmas": true, "use_karras_sigmas": true})",
              "use_karras_sigmas"},
      }) {
    DQ_ASSERT_OK(const Json j, parse_json(c.json, "f.json"));
    const auto r = FlowMatchConfig::parse(j, "f.json");
    ASSERT_FALSE(r.ok()) << c.json;
    EXPECT_EQ(r.error().code, ErrorCode::bad_input) << c.json;
    EXPECT_NE(r.error().message.find(c.says), std::string::npos) << r.error().message;
    EXPECT_NE(r.error().message.find("f.json"), std::string::npos) << r.error().message;
  }
}

}  // namespace
}  // namespace danqing
