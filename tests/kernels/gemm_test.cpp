// Packed products, tile by tile and whole, against sums in f64.
#include "device/kernels/gemm.h"

#include <cmath>
#include <cstring>
#include <random>

#include "device/kernels/rows.h"
#include "testing/testing.h"

namespace danqing::kernels {
namespace {

struct Aligned {
  explicit Aligned(size_t bytes) : memory(bytes + 64) {}
  std::byte* data() {
    return reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
  }
  std::vector<std::byte> memory;
};

std::vector<float> random(size_t n, unsigned seed) {
  std::mt19937 gen(seed);
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> v(n);
  for (float& x : v) x = normal(gen);
  return v;
}

struct Case {
  int64_t m, n, k;
  bool keep_b;
};
void PrintTo(const Case& c, std::ostream* os) { *os << c.m << "x" << c.n << "x" << c.k << (c.keep_b ? " kept" : ""); }

std::vector<float> product(const Case& c, Format format, const std::vector<float>& a, const std::vector<float>& b,
                           int threads, const Finish& finish = {}) {
  Pool pool(threads);
  Gemm g;
  g.m = c.m, g.n = c.n, g.k = c.k, g.format = format, g.keep_b = c.keep_b;
  g.a = [&](int64_t r, int64_t k0, int64_t, float*) { return a.data() + r * c.k + k0; };
  g.b = [&](int64_t r, int64_t k0, int64_t kn, float* buffer) {
    std::copy_n(b.data() + r * c.k + k0, kn, buffer);
    return static_cast<const float*>(buffer);
  };
  std::vector<float> as(static_cast<size_t>(c.m)), bs(static_cast<size_t>(c.n));
  for (int64_t i = 0; i < c.m; ++i) as[static_cast<size_t>(i)] = absmax(a.data() + i * c.k, c.k) / 127;
  for (int64_t i = 0; i < c.n; ++i) bs[static_cast<size_t>(i)] = absmax(b.data() + i * c.k, c.k) / 127;
  g.a_scale = as.data(), g.b_scale = bs.data();
  std::vector<float> y(static_cast<size_t>(c.m * (c.n + 3)), -7.0f);  // rows lie apart: what is between stays
  g.c = y.data(), g.ldc = c.n + 3;
  g.finish = finish;
  Aligned scratch(gemm_scratch(g, threads));
  std::memset(scratch.data(), 0x7f, gemm_scratch(g, threads));
  multiply(pool, g, scratch.data());
  return y;
}

class Products : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Shapes, Products,
                         ::testing::Values(Case{1, 1, 1, false}, Case{1, 300, 64, false}, Case{13, 33, 129, false},
                                           Case{12, 32, 128, false}, Case{37, 70, 100, true}, Case{5, 17, 1025, false},
                                           Case{400, 130, 300, false}, Case{1200, 40, 70, false},
                                           Case{9, 200, 2050, true}, Case{385, 31, 513, true},
                                           Case{24700, 20, 40, true}, Case{24700, 20, 40, false}));

TEST_P(Products, AreRightAndIndependentOfThreads) {
  const Case& c = GetParam();
  const auto a = random(static_cast<size_t>(c.m * c.k), 1), b = random(static_cast<size_t>(c.n * c.k), 2);
  // f32: rounding of sums of k terms, at most sqrt(k) 2^-24 of the terms' size. i16: two roundings to 1/8190 of the
  // largest of 128 normal values (about 3 deviations): 1.5e-4. i8: the same with 1/254 and a largest of 4: 9e-3.
  for (const auto& [format, tolerance] :
       {std::pair(Format::f32, 2e-6), std::pair(Format::i16, 4e-4), std::pair(Format::i8, 2e-2)}) {
    if (!computes(format)) continue;
    const auto y = product(c, format, a, b, 1);
    double wrong = 0, size = 0;
    for (int64_t i = 0; i < c.m; ++i) {
      for (int64_t j = 0; j < c.n; ++j) {
        double sum = 0;
        for (int64_t l = 0; l < c.k; ++l)
          sum += static_cast<double>(a[static_cast<size_t>(i * c.k + l)]) * b[static_cast<size_t>(j * c.k + l)];
        const double e = y[static_cast<size_t>(i * (c.n + 3) + j)] - sum;
        wrong += e * e, size += sum * sum;
      }
      for (int64_t j = c.n; j < c.n + 3; ++j) ASSERT_EQ(y[static_cast<size_t>(i * (c.n + 3) + j)], -7.0f);
    }
    EXPECT_LT(std::sqrt(wrong / size), tolerance) << "format " << static_cast<int>(format);
    for (int threads : {2, 3}) EXPECT_EQ(product(c, format, a, b, threads), y) << threads << " threads";
  }
}

TEST(Products, OfNothing) {
  for (Format format : {Format::f32, Format::i16, Format::i8}) {
    if (!computes(format)) continue;
    EXPECT_TRUE(product({0, 5, 7, false}, format, {}, random(35, 1), 2).empty());
    const auto none = product({3, 0, 7, false}, format, random(21, 1), {}, 2);
    EXPECT_EQ(none, std::vector<float>(9, -7.0f));
    const auto zero = product({2, 1, 0, false}, format, {}, {}, 2);
    EXPECT_EQ(zero, (std::vector<float>{0, -7, -7, -7, 0, -7, -7, -7}));
  }
}

TEST(Products, FinishSeesEveryValueOnce) {
  const Case c{50, 70, 600, false};
  const auto a = random(static_cast<size_t>(c.m * c.k), 1), b = random(static_cast<size_t>(c.n * c.k), 2);
  const auto plain = product(c, Format::f32, a, b, 2);
  const auto changed = product(c, Format::f32, a, b, 2, [](int64_t m, int64_t n, int64_t count, float* y) {
    for (int64_t i = 0; i < count; ++i) y[i] = 2 * y[i] + static_cast<float>(m * 100 + n + i);
  });
  for (int64_t i = 0; i < c.m; ++i)
    for (int64_t j = 0; j < c.n; ++j) {
      const auto at = static_cast<size_t>(i * (c.n + 3) + j);
      ASSERT_EQ(changed[at], 2 * plain[at] + static_cast<float>(i * 100 + j));
    }
}

TEST(Products, NotFiniteStaysNotFinite) {
  const Case c{40, 40, 300, false};
  auto a = random(static_cast<size_t>(c.m * c.k), 1);
  const auto b = random(static_cast<size_t>(c.n * c.k), 2);
  a[static_cast<size_t>(7 * c.k + 250)] = NAN;
  a[static_cast<size_t>(20 * c.k + 3)] = INFINITY;
  for (Format format : {Format::f32, Format::i16, Format::i8}) {
    if (!computes(format)) continue;
    const auto y = product(c, format, a, b, 2);
    for (int64_t i = 0; i < c.m; ++i)
      for (int64_t j = 0; j < c.n; ++j)
        ASSERT_EQ(std::isfinite(y[static_cast<size_t>(i * (c.n + 3) + j)]), i != 7 && i != 20) << i << " " << j;
  }
}

// Every instruction set that this processor has, not only the best.
TEST(Tiles, OfEveryInstructionSet) {
  int count = 0;
  const MicroKernels* const* all = all_micro_kernels(&count);
  ASSERT_GT(count, 0);
  std::mt19937 gen(3);
  for (int t = 0; t < count; ++t) {
    const MicroKernels& m = *all[t];
    const auto mr = static_cast<size_t>(m.mr), nr = static_cast<size_t>(m.nr), k = size_t{256};
    Aligned fa(k * mr * 4), fb(k * nr * 4), qa(k * mr * 2), qb(k * nr * 2), sa(2 * mr * 4), sb(2 * nr * 4),
        c(mr * nr * 4);
    auto *a = reinterpret_cast<float*>(fa.data()), *b = reinterpret_cast<float*>(fb.data());
    auto *sum = reinterpret_cast<float*>(c.data()), *as = reinterpret_cast<float*>(sa.data());
    auto* bs = reinterpret_cast<float*>(sb.data());
    const auto small = [&](int most) { return static_cast<int>(gen() % static_cast<unsigned>(2 * most + 1)) - most; };
    for (size_t i = 0; i < k * mr; ++i) a[i] = static_cast<float>(small(64));
    for (size_t i = 0; i < k * nr; ++i) b[i] = static_cast<float>(small(64));
    for (const bool again : {false, true}) {  // whole numbers: sums are exact
      m.f32(static_cast<int64_t>(k), a, b, sum, m.nr, again);
      for (size_t i = 0; i < mr; ++i)
        for (size_t j = 0; j < nr; ++j) {
          double expected = 0;
          for (size_t l = 0; l < k; ++l) expected += static_cast<double>(a[l * mr + i]) * b[l * nr + j];
          ASSERT_EQ(sum[i * nr + j], expected * (again ? 2 : 1)) << m.name;
        }
    }
    if (m.i16) {
      auto *x = reinterpret_cast<int16_t*>(qa.data()), *w = reinterpret_cast<int16_t*>(qb.data());
      for (size_t i = 0; i < k * mr; ++i) x[i] = static_cast<int16_t>(i % 3 == 0 ? kMaxI16 : small(kMaxI16));
      for (size_t i = 0; i < k * nr; ++i) w[i] = static_cast<int16_t>(i % 5 == 0 ? -kMaxI16 : small(kMaxI16));
      for (size_t i = 0; i < 2 * mr; ++i) as[i] = std::ldexp(1.0f, -static_cast<int>(i % 5));
      for (size_t i = 0; i < 2 * nr; ++i) bs[i] = std::ldexp(1.0f, -static_cast<int>(i % 7));
      m.i16(static_cast<int64_t>(k), x, as, w, bs, sum, m.nr, false);
      for (size_t i = 0; i < mr; ++i)
        for (size_t j = 0; j < nr; ++j) {
          double expected = 0;
          for (size_t l = 0; l < k; ++l)
            expected += static_cast<double>(x[l / 2 * mr * 2 + i * 2 + l % 2]) * w[l / 2 * nr * 2 + j * 2 + l % 2] *
                        as[l / 128 * mr + i] * bs[l / 128 * nr + j];
          ASSERT_NEAR(sum[i * nr + j], expected, std::abs(expected) * 1e-6 + 600)
              << m.name;  // two f32 sums of up to 2^31
        }
    }
    if (m.i8) {
      auto* x = reinterpret_cast<uint8_t*>(qa.data());
      auto* w = reinterpret_cast<int8_t*>(qb.data());
      auto* y = reinterpret_cast<int32_t*>(c.data());
      for (size_t i = 0; i < k * mr; ++i) x[i] = static_cast<uint8_t>(i % 4 == 0 ? 255 : gen() % 256);
      for (size_t i = 0; i < k * nr; ++i) w[i] = static_cast<int8_t>(i % 3 == 0 ? -127 : small(127));
      for (const bool again : {false, true}) {
        m.i8(static_cast<int64_t>(k), x, w, y, m.nr, again);
        for (size_t i = 0; i < mr; ++i)
          for (size_t j = 0; j < nr; ++j) {
            int64_t expected = 0;
            for (size_t l = 0; l < k; ++l)
              expected += x[l / 4 * mr * 4 + i * 4 + l % 4] * w[l / 4 * nr * 4 + j * 4 + l % 4];
            ASSERT_EQ(y[i * nr + j], expected * (again ? 2 : 1)) << m.name;
          }
      }
    }
  }
}

}  // namespace
}  // namespace danqing::kernels
