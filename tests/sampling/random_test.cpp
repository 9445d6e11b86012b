#include "sampling/random.h"

#include <cmath>

#include "testing/testing.h"

namespace danqing {
namespace {

using testing::golden;

const uint64_t kSeeds[] = {0, 42, 4294967303};  // the last one is 2^32 + 7: only the low 32 bits count

// log, sin and cos of two correct f32 libraries differ by an ulp or two; values reach 5, so 5e-7 absolute (fixtures
// page).
constexpr double kF32 = 5e-7;

std::string key(const std::string& what, uint64_t seed, const std::string& rest) {
  return what + ".seed" + std::to_string(seed) + "." + rest;
}

void expect_near(const std::vector<float>& got, const Tensor& expected, double tolerance, const std::string& what) {
  ASSERT_EQ(got.size(), expected.data.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected.data[i], tolerance) << what << " at " << i;
}

// Equal, or one bf16 step apart where the f32 value lies on a rounding boundary; no more than one value in 500.
void expect_bf16(const std::vector<float>& got, const Tensor& expected, const std::string& what) {
  ASSERT_EQ(got.size(), expected.data.size()) << what;
  size_t different = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], expected.data[i], std::fabs(expected.data[i]) / 128) << what << " at " << i;
    different += got[i] != expected.data[i];
  }
  EXPECT_LE(different, got.size() / 500) << what;
}

std::vector<float> randn(CpuGenerator& g, size_t n, WorkType type = WorkType::f32) {
  std::vector<float> out(n);
  g.randn(out, type);
  return out;
}

TEST(CpuGenerator, Mt19937Outputs) {
  const auto g = golden("rng/rng");
  for (const uint64_t seed : kSeeds) {
    auto expected = read_integers(*g.source, key("mt19937", seed, "first64"));
    ASSERT_TRUE(expected.ok());
    CpuGenerator generator(seed);
    for (const int64_t e : *expected) ASSERT_EQ(generator.next_u32(), static_cast<uint32_t>(e));
  }
}

TEST(CpuGenerator, NormalsOfEverySize) {
  const auto g = golden("rng/rng");
  for (const uint64_t seed : kSeeds) {
    for (const size_t n : {1u, 5u, 15u, 16u, 17u, 100u, 1000u}) {
      const std::string name = key("randn", seed, "n" + std::to_string(n));
      CpuGenerator a(seed), b(seed);
      expect_near(randn(a, n), g.f32(name + ".f32"), kF32, name);
      expect_bf16(randn(b, n, WorkType::bf16), g.f32(name + ".bf16"), name);
    }
    CpuGenerator a(seed), b(seed);
    expect_near(randn(a, 128 * 24), g.f32(key("randn", seed, "1x128x4x6.f32")), kF32, "latents");
    expect_bf16(randn(b, 128 * 24, WorkType::bf16), g.f32(key("randn", seed, "1x128x4x6.bf16")), "latents");
  }
}

TEST(CpuGenerator, UniformsAreExact) {
  const auto g = golden("rng/rng");
  for (const uint64_t seed : kSeeds)
    for (const size_t n : {1u, 5u, 15u, 16u, 17u, 100u, 1000u})
      for (const auto& [suffix, type] : {std::pair(".f32", WorkType::f32), std::pair(".bf16", WorkType::bf16)}) {
        CpuGenerator generator(seed);
        std::vector<float> out(n);
        generator.rand(out, type);
        EXPECT_EQ(out, g.f32(key("rand", seed, "n" + std::to_string(n)) + suffix).data) << seed << " " << n << suffix;
      }
}

TEST(CpuGenerator, ConsecutiveDrawsShareTheStreamAndTheKeptSine) {
  const auto g = golden("rng/rng");
  const std::pair<size_t, size_t> sizes[] = {{5, 5}, {16, 17}, {100, 3}, {3, 100}, {1, 16}, {15, 15}};
  for (const uint64_t seed : kSeeds) {
    for (const auto& [first, second] : sizes) {
      const std::string rest = std::to_string(first) + "_" + std::to_string(second);
      CpuGenerator a(seed), b(seed);
      expect_near(randn(a, first), g.f32(key("two_draws", seed, rest + ".first")), kF32, rest);
      expect_near(randn(a, second), g.f32(key("two_draws", seed, rest + ".second")), kF32, rest);
      expect_bf16(randn(b, first, WorkType::bf16), g.f32(key("two_draws_bf16", seed, rest + ".first")), rest);
      expect_bf16(randn(b, second, WorkType::bf16), g.f32(key("two_draws_bf16", seed, rest + ".second")), rest);
    }
    CpuGenerator generator(seed);
    std::vector<float> uniform(7);
    generator.rand(uniform);
    EXPECT_EQ(uniform, g.f32(key("rand_then_randn", seed, "rand")).data);
    expect_near(randn(generator, 20), g.f32(key("rand_then_randn", seed, "randn")), kF32, "randn after rand");
  }
}

TEST(CpuGenerator, ExponentialsAndDrawsOfOneAreExact) {
  const auto g = golden("rng/rng");
  for (const uint64_t seed : kSeeds) {
    CpuGenerator a(seed), b(seed);
    // log1p in f64 rounded to f32: libraries agree but for a value in 2^29 or so.
    for (const float e : g.f32(key("exponential", seed, "n1000")).data) ASSERT_EQ(a.exponential(), e);
    const Tensor p = g.f32(key("multinomial", seed, "probs"));
    for (const int32_t id : g.ids(key("multinomial", seed, "ten_draws_of_one"))) EXPECT_EQ(b.draw_one(p.data), id);
  }
}

TEST(CpuGenerator, DrawOneCannotChooseWhatHasNoProbability) {
  CpuGenerator generator(3);
  const std::vector<float> p = {0, 0, 1, 0};
  for (int i = 0; i < 100; ++i) EXPECT_EQ(generator.draw_one(p), 2);
  EXPECT_EQ(generator.draw_one({}), -1);
}

TEST(CpuGenerator, InitialLatentsOfThePipeline) {
  const auto g = golden("ernie-tiny/golden/init_latents");
  for (const uint64_t seed : {uint64_t{0}, uint64_t{42}, uint64_t{1234567890123}}) {
    for (const std::string shape : {"1x128x4x6", "2x128x4x4"}) {
      const std::string name = "seed" + std::to_string(seed) + "." + shape;
      const Tensor f32 = g.f32(name + ".f32"), bf16 = g.f32(name + ".bf16");
      CpuGenerator a(seed), b(seed);
      expect_near(randn(a, f32.data.size()), f32, kF32, name);
      expect_bf16(randn(b, bf16.data.size(), WorkType::bf16), bf16, name);
    }
  }
}

TEST(CpuGenerator, HalfTypesAreRounded) {
  CpuGenerator a(5), b(5);
  const std::vector<float> f32 = randn(a, 4096), f16 = randn(b, 4096, WorkType::f16);
  for (size_t i = 0; i < f32.size(); ++i) ASSERT_EQ(f16[i], round_f16(f32[i]));
}

TEST(CpuGenerator, EmptyDrawLeavesTheStreamAlone) {
  CpuGenerator a(9), b(9);
  std::vector<float> none;
  a.randn(none);
  EXPECT_EQ(a.next_u32(), b.next_u32());
}

TEST(CudaGenerator, KnownValuesOfSeedZero) {
  const Tensor expected = golden("rng/rng").f32("cuda_philox.seed0.first6");
  std::vector<float> got(6);
  CudaGenerator(0).randn(got);
  // The values are given with 8 digits and the card's fast sin and log are good to 2e-7 relative: 1e-6 absolute.
  expect_near(got, expected, 1e-6, "philox");
}

TEST(CudaGenerator, LayoutFollowsTheGrid) {
  // One block of 256 threads: values 256 apart come from one call of a thread, values 1024 apart from its next call.
  std::vector<float> wide(2048), narrow(2048), first(1024), second(1024);
  CudaGenerator(7, 8).randn(wide);  // 8 blocks: every value is the first of its own thread
  CudaGenerator one_block(7, 1);
  one_block.randn(narrow);  // 1 block: 4 values a call, two calls
  for (size_t i = 0; i < 256; ++i) EXPECT_EQ(wide[i], narrow[i]);
  EXPECT_NE(wide[256], narrow[256]);
  CudaGenerator stream(7, 1);
  stream.randn(first);
  stream.randn(second);  // a second draw continues where the first one's counters ended
  EXPECT_TRUE(std::equal(first.begin(), first.end(), narrow.begin()));
  EXPECT_TRUE(std::equal(second.begin(), second.end(), narrow.begin() + 1024));
}

TEST(CudaGenerator, IsStandardNormalAndUsesAllSeedBits) {
  std::vector<float> x(300000);
  CudaGenerator(uint64_t{1} << 40).randn(x);
  double sum = 0, squares = 0;
  for (const float v : x) sum += v, squares += static_cast<double>(v) * v;
  const double n = static_cast<double>(x.size());
  EXPECT_NEAR(sum / n, 0, 5 / std::sqrt(n));          // five standard errors of the mean
  EXPECT_NEAR(squares / n, 1, 5 * std::sqrt(2 / n));  // five standard errors of the variance
  std::vector<float> other(1);
  CudaGenerator(0).randn(other);
  EXPECT_NE(x[0], other[0]);
}

TEST(MakeGenerator, GivesTheKindAskedFor) {
  std::vector<float> a(32), b(32);
  make_generator(GeneratorKind::cpu, 1)->randn(a);
  CpuGenerator(1).randn(b);
  EXPECT_EQ(a, b);
  make_generator(GeneratorKind::cuda, 1)->randn(a);
  CudaGenerator(1).randn(b);
  EXPECT_EQ(a, b);
}

}  // namespace
}  // namespace danqing
