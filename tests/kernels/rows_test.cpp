// Row functions of the kernels against plain loops.
#include "device/kernels/rows.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "device/dequantize.h"
#include "device/kernels/activation.h"
#include "device/kernels/micro.h"
#include "testing/testing.h"

namespace danqing::kernels {
namespace {

std::vector<float> random(size_t n, unsigned seed, float std = 1.0f) {
  std::mt19937 gen(seed);
  std::normal_distribution<float> normal(0, std);
  std::vector<float> v(n);
  for (float& x : v) x = normal(gen);
  return v;
}

constexpr DType kWeightTypes[] = {DType::f32,  DType::bf16, DType::f16,  DType::q8_0, DType::q4_0,
                                  DType::q4_1, DType::q5_0, DType::q5_1, DType::q2_k, DType::q3_k,
                                  DType::q4_k, DType::q5_k, DType::q6_k, DType::mxfp4};

std::vector<std::byte> stored(DType type, const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() / static_cast<size_t>(traits(type).block_elements) *
                               static_cast<size_t>(traits(type).block_bytes));
  EXPECT_TRUE(quantize(type, values, static_cast<int64_t>(values.size()), bytes).ok());
  return bytes;
}

TEST(Expand, IsBitEqualToTheDecoder) {
  for (DType type : kWeightTypes) {
    ASSERT_TRUE(expands(type)) << name(type);
    for (size_t n : {size_t{256}, size_t{1024}, size_t{4096}}) {
      const auto bytes = stored(type, random(n, 5));
      std::vector<float> expected(n), got(n + 1, -7.0f);
      ASSERT_TRUE(dequantize(type, bytes, expected).ok());
      expand(type, bytes.data(), static_cast<int64_t>(n), got.data());
      EXPECT_EQ(std::memcmp(got.data(), expected.data(), n * 4), 0) << name(type);
      EXPECT_EQ(got[n], -7.0f);
    }
  }
}

TEST(Expand, OddLengths) {
  for (DType type : {DType::f32, DType::bf16, DType::f16})
    for (size_t n = 1; n < 70; ++n) {
      const auto bytes = stored(type, random(n, 5));
      std::vector<float> expected(n), got(n + 1, -7.0f);
      ASSERT_TRUE(dequantize(type, bytes, expected).ok());
      expand(type, bytes.data(), static_cast<int64_t>(n), got.data());
      got.pop_back();
      EXPECT_EQ(got, expected) << name(type) << " " << n;
    }
}

TEST(Interleave, PlacesRowsAsColumns) {
  std::vector<uint32_t> data(4 * 50);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<uint32_t>(i + 1);
  for (int group : {6, 12, 16, 32})
    for (int first = 0; first < group; first += 4)
      for (int count = 0; count <= std::min(4, group - first); ++count)
        for (int64_t k : {1, 3, 4, 17, 50}) {
          const void* rows[4];
          for (int r = 0; r < 4; ++r) rows[r] = data.data() + r * 50;
          std::vector<uint32_t> out(static_cast<size_t>(k * group), 999);
          interleave(rows, count, k, group, first, out.data());
          for (int64_t j = 0; j < k; ++j)
            for (int i = 0; i < group; ++i) {
              const uint32_t expected = i < first || i >= first + 4 ? 999
                                        : i - first < count         ? data[static_cast<size_t>((i - first) * 50 + j)]
                                                                    : 0;
              ASSERT_EQ(out[static_cast<size_t>(j * group + i)], expected) << group << first << count << k;
            }
        }
}

TEST(QuantizeI16, KeepsBf16ValuesWithinRange) {
  // 8 significant bits and a power of two as scale: exact down to 1/16 of the largest value of a block.
  std::vector<float> x(256);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = std::ldexp(1.0f + static_cast<float>(i % 128) / 128, -static_cast<int>(i % 5)) * (i % 2 ? -1 : 1);
  std::vector<int16_t> q(256);
  float scales[2];
  quantize_i16(x.data(), 256, true, q.data(), scales);
  for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(static_cast<float>(q[i]) * scales[i / 128], x[i]);
}

TEST(QuantizeBf16, IsTheSameAsByWayOfF32) {
  std::mt19937 gen(11);
  for (int64_t k = 1; k < 400; k += 1 + static_cast<int64_t>(gen() % 9))
    for (int kind = 0; kind < 6; ++kind) {
      std::vector<uint16_t> x(static_cast<size_t>(k));
      for (uint16_t& v : x) {  // any bits, ordinary values, tiny ones, zeros, with an infinity, with a NaN
        const auto bits = static_cast<uint16_t>(gen());
        v = kind == 0   ? bits
            : kind == 2 ? static_cast<uint16_t>(bits & 0x83ff)
            : kind == 3 ? static_cast<uint16_t>(bits & 0x8000)
                        : static_cast<uint16_t>((bits & 0x80ff) | (120 + bits / 256 % 10) << 7);
      }
      if (kind >= 4) x[gen() % x.size()] = kind == 4 ? 0xff80 : 0x7fc0;
      std::vector<float> wide(x.size());
      expand(DType::bf16, reinterpret_cast<const std::byte*>(x.data()), k, wide.data());
      const auto room = static_cast<size_t>((k + kBlockK - 1) / kBlockK * kBlockK);
      std::vector<int16_t> got(room, 7), want(room, 9);
      std::vector<float> got_scales(room / kBlockK), want_scales(room / kBlockK);
      quantize_bf16(x.data(), k, got.data(), got_scales.data());
      quantize_i16(wide.data(), k, true, want.data(), want_scales.data());
      EXPECT_EQ(got, want) << k << " kind " << kind;
      for (size_t i = 0; i < got_scales.size(); ++i)
        EXPECT_TRUE(got_scales[i] == want_scales[i] || (std::isnan(got_scales[i]) && std::isnan(want_scales[i])));
    }
}

TEST(QuantizeI16, ErrorIsHalfAStepAndPaddingIsZero) {
  for (const bool power : {false, true})
    for (int64_t k : {1, 5, 127, 128, 129, 300}) {
      const auto x = random(static_cast<size_t>(k), 9, 3e4f);
      const int64_t padded = (k + 127) / 128 * 128;
      std::vector<int16_t> q(static_cast<size_t>(padded), 77);
      std::vector<float> scales(static_cast<size_t>(padded / 128));
      quantize_i16(x.data(), k, power, q.data(), scales.data());
      for (int64_t i = 0; i < padded; ++i) {
        const float s = scales[static_cast<size_t>(i / 128)], v = i < k ? x[static_cast<size_t>(i)] : 0.0f;
        EXPECT_LE(std::abs(q[static_cast<size_t>(i)]), kMaxI16);
        EXPECT_LE(std::abs(static_cast<float>(q[static_cast<size_t>(i)]) * s - v), s * (power ? 1.01f : 0.501f));
      }
    }
}

TEST(QuantizeI16, OddValues) {
  std::vector<int16_t> q(128);
  float scale = 1;
  quantize_i16(std::vector<float>(128, 0.0f).data(), 128, false, q.data(), &scale);
  EXPECT_EQ(scale, 0.0f);
  for (float bad : {NAN, INFINITY, -INFINITY}) {
    std::vector<float> x(128, 1.0f);
    x[77] = bad;
    quantize_i16(x.data(), 128, false, q.data(), &scale);
    EXPECT_TRUE(std::isnan(scale));
  }
  quantize_i16(std::vector<float>(128, std::numeric_limits<float>::max()).data(), 128, true, q.data(), &scale);
  EXPECT_TRUE(std::isfinite(scale));
  EXPECT_NEAR(static_cast<double>(q[0]) * static_cast<double>(scale), 3.4028234e38, 1e35);
}

TEST(QuantizeI8, RoundsToTheNearestStep) {
  const auto x = random(77, 4);
  const float scale = absmax(x.data(), 77) / 127;
  std::vector<uint8_t> q(77);
  for (int zero : {0, 128}) {
    quantize_i8(x.data(), 77, scale, zero, q.data());
    for (size_t i = 0; i < q.size(); ++i) {
      const int v = zero ? q[i] - 128 : static_cast<int8_t>(q[i]);
      EXPECT_LE(std::abs(static_cast<float>(v) * scale - x[i]), scale * 0.501f) << i;
    }
  }
}

TEST(Dot, OfEveryWeightType) {
  for (DType type : kWeightTypes)
    for (int64_t k : {256, 512, 2304})
      for (int rows = 1; rows <= 4; ++rows) {
        const auto w = stored(type, random(static_cast<size_t>(k), 1)),
                   x = stored(DType::f32, random(static_cast<size_t>(rows * (k + 3)), 2));
        std::vector<float> values(static_cast<size_t>(k));
        ASSERT_TRUE(dequantize(type, w, values).ok());
        const auto* xs = reinterpret_cast<const float*>(x.data());
        float y[4] = {-7, -7, -7, -7};
        dot(type, w.data(), xs, k + 3, rows, k, y);
        for (int r = 0; r < 4; ++r) {
          double sum = 0, size = 0;
          for (int64_t i = 0; i < k && r < rows; ++i) {
            const double p = static_cast<double>(values[static_cast<size_t>(i)]) * xs[r * (k + 3) + i];
            sum += p, size += p * p;
          }
          if (r < rows)
            EXPECT_NEAR(y[r], sum, 2e-6 * std::sqrt(size)) << name(type);
          else
            EXPECT_EQ(y[r], -7.0f);
        }
      }
}

TEST(Dot, OddLengths) {
  for (DType type : {DType::f32, DType::bf16, DType::f16})
    for (int64_t k = 1; k < 150; ++k) {
      const auto w = stored(type, std::vector<float>(static_cast<size_t>(k), 0.5f));
      const std::vector<float> x(static_cast<size_t>(k), 2.0f);
      float y = 0;
      dot(type, w.data(), x.data(), k, 1, k, &y);
      EXPECT_EQ(y, static_cast<float>(k));
    }
}

/// Largest error of f over a dense grid, relative to the exact value (absolute below 1e-30).
template <class F, class G>
double worst(F f, G exact, double from, double to) {
  double most = 0;
  std::vector<float> x, y;
  for (double v = from; v <= to; v += (to - from) / 100003) x.push_back(static_cast<float>(v));
  y.resize(x.size());
  f(x.data(), static_cast<int64_t>(x.size()), y.data());
  for (size_t i = 0; i < x.size(); ++i) {
    const double e = exact(static_cast<double>(x[i]));
    most = std::max(most, std::abs(y[i] - e) / std::max(std::abs(e), 1e-30));
  }
  return most;
}

TEST(Activation, IsAccurate) {
  const auto exp_of = [](const float* x, int64_t n, float* y) { exp_minus(x, n, 0.0f, y); };
  EXPECT_LT(worst(
                exp_of, [](double v) { return std::exp(v); }, -86.9, 87.9),
            2e-7);
  EXPECT_LT(worst([](const float* x, int64_t n, float* y) { silu(x, n, y); },
                  [](double v) { return v / (1 + std::exp(-v)); }, -86, 86),
            3e-7);
  // Relative to the value; the tail below -5 keeps fewer digits (its exponent is a rounded square), far beyond what
  // x/2 (1 + erf) in f32 keeps.
  const auto gelu = [](double v) { return v / 2 * std::erfc(-v / std::sqrt(2.0)); };
  const auto ours = [](const float* x, int64_t n, float* y) { gelu_erf(x, n, y); };
  EXPECT_LT(worst(ours, gelu, -3, 20), 2e-6);
  EXPECT_LT(worst(ours, gelu, -8, -3), 8e-6);  // measured 5.6e-6
}

TEST(Activation, Extremes) {
  const float x[] = {-INFINITY, -1e30f, -200, -0.0f, 0, 200, 1e30f, INFINITY, NAN};
  float y[9];
  silu(x, 9, y);
  for (int i = 0; i < 8; ++i) EXPECT_FALSE(std::isnan(y[i]) && i != 0) << i;
  EXPECT_EQ(y[5], 200.0f);
  EXPECT_TRUE(std::isnan(y[8]));
  gelu_erf(x, 9, y);
  EXPECT_EQ(y[3], 0.0f);
  EXPECT_EQ(y[5], 200.0f);
  EXPECT_TRUE(std::isnan(y[8]));
  EXPECT_EQ(exp_minus(x, 1, 3.0f, y), 0.0f);  // -inf
  EXPECT_EQ(maximum(x, 0), -INFINITY);
  EXPECT_EQ(maximum(x, 8), INFINITY);
}

TEST(Activation, GatesInPlace) {
  for (size_t n : {1u, 15u, 16u, 33u, 100u}) {
    const auto gate = random(n, 1), up = random(n, 2);
    auto y = up;
    silu_times(gate.data(), y.data(), static_cast<int64_t>(n), y.data());
    for (size_t i = 0; i < n; ++i) EXPECT_NEAR(y[i], gate[i] / (1 + std::exp(-gate[i])) * up[i], 2e-6);
    y = up;
    gelu_erf_times(gate.data(), y.data(), static_cast<int64_t>(n), y.data());
    for (size_t i = 0; i < n; ++i) EXPECT_NEAR(y[i], gate[i] / 2 * std::erfc(-gate[i] / std::sqrt(2.0f)) * up[i], 2e-6);
  }
}

}  // namespace
}  // namespace danqing::kernels
