// Single operations against torch, diffusers and transformers (fixtures/units).
#include <cmath>

#include "nn_testing.h"
#include "testing/testing.h"

namespace danqing {
namespace {

using nn_testing::Bench;
using testing::close;
using testing::golden;

// The fixture page: "f32: 2e-6 relative L2 (5e-6 for attention and conv)".
constexpr double kTolerance = 2e-6, kProductTolerance = 5e-6;

const testing::Golden& units() {
  static const testing::Golden g = golden("units/units");
  return g;
}

class Norms : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Scales, Norms, ::testing::Values("norm.scale1", "norm.scale0.001", "norm.scale300"));

TEST_P(Norms, Rms) {
  const std::string p = GetParam();
  for (const auto& [name, eps] : {std::pair("torch_rms_eps1e-6", 1e-6f), std::pair("diffusers_rms_eps1e-05", 1e-5f),
                                  std::pair("transformers_rms_eps1e-06", 1e-6f)}) {
    Bench b;
    auto* x = b.input("x", units().f32(p + ".in"));
    auto* w = b.input("w", units().f32("norm.weight"));
    EXPECT_TRUE(close(b.run(nn::rms_norm(b.graph(), x, w, eps)), units().f32(p + "." + name + ".f32"), kTolerance))
        << name;
  }
}

TEST_P(Norms, Layer) {
  const std::string p = GetParam();
  Bench b;
  auto* x = b.input("x", units().f32(p + ".in"));
  EXPECT_TRUE(close(b.run(nn::layer_norm(b.graph(), x, nullptr, nullptr, 1e-6f)),
                    units().f32(p + ".layernorm_eps1e-6.f32"), kTolerance));
}

TEST_P(Norms, Group) {
  const std::string p = GetParam();
  Bench b;
  auto* x = b.input("x", units().f32(p + ".in"));  // [6, 128], normalised as [1, 32, 24, 1]
  auto* y = nn::group_norm(b.graph(), nn::reshape(b.graph(), x, {1, 32, 24, 1}), nullptr, nullptr, 8, 1e-6f);
  EXPECT_TRUE(close(b.run(y, {6, 128}), units().f32(p + ".groupnorm8_eps1e-6.f32"), kTolerance));
}

TEST(Activations, MatchTorch) {
  const Tensor in = units().f32("act.in");
  const auto apply = [&](ggml_tensor* (*f)(Graph&, ggml_tensor*)) {
    Bench b;
    return b.run(f(b.graph(), b.input("x", in)));
  };
  EXPECT_TRUE(close(apply(nn::gelu_erf), units().f32("act.gelu_erf.f32"), kTolerance));
  EXPECT_TRUE(close(apply(nn::silu), units().f32("act.silu.f32"), kTolerance));
  EXPECT_TRUE(close(apply(nn::tanh), units().f32("act.tanh.f32"), kTolerance));
}

TEST(Activations, SmallInputsToo) {  // the large inputs of the golden hide an error of the small ones
  Tensor in = units().f32("act.in"), gelu = units().f32("act.gelu_erf.f32"), silu = units().f32("act.silu.f32");
  for (size_t i = 0; i < in.data.size(); ++i)
    if (std::fabs(in.data[i]) > 20) in.data[i] = gelu.data[i] = silu.data[i] = 0;
  Bench a, b;
  EXPECT_TRUE(close(a.run(nn::gelu_erf(a.graph(), a.input("x", in))), gelu, kTolerance));
  EXPECT_TRUE(close(b.run(nn::silu(b.graph(), b.input("x", in))), silu, kTolerance));
}

TEST(Rope, Half) {
  Tensor angles = units().f32("rope.ernie_angles"), cos({1, 5, 1, 128}), sin({1, 5, 1, 128});
  for (size_t i = 0; i < angles.data.size(); ++i) {
    cos.data[i] = std::cos(angles.data[i]);
    sin.data[i] = std::sin(angles.data[i]);
  }
  Bench b;
  auto* y = nn::rope(b.graph(), b.input("q", units().f32("rope.q")), b.input("cos", cos), b.input("sin", sin),
                     nn::RopeStyle::half);
  EXPECT_TRUE(close(b.run(y, {1, 5, 2, 128}), units().f32("rope.ernie_rotated.f32"), kTolerance));
}

TEST(Rope, Adjacent) {
  const auto twice = [](const Tensor& t) {  // [5, 64] -> [1, 5, 1, 128], each value beside itself
    Tensor out({1, t.shape[0], 1, 2 * t.shape[1]});
    for (size_t i = 0; i < out.data.size(); ++i) out.data[i] = t.data[i / 2];
    return out;
  };
  Bench b;
  auto* y =
      nn::rope(b.graph(), b.input("q", units().f32("rope.q")), b.input("cos", twice(units().f32("rope.zimage_cos"))),
               b.input("sin", twice(units().f32("rope.zimage_sin"))), nn::RopeStyle::adjacent);
  EXPECT_TRUE(close(b.run(y, {1, 5, 2, 128}), units().f32("rope.zimage_rotated.f32"), kTolerance));
}

// q [2, 4, 13, 64], k and v [2, 2, 13, 64] in the golden; ours are [B, T, heads, D].
Tensor golden_attention(const Tensor& mask) {
  Bench b;
  Graph& g = b.graph();
  const auto heads_last = [&](const char* name) {
    return nn::permute(g, b.input(name, units().f32(std::string("attention.") + name)), {0, 2, 1, 3});
  };
  auto *q = heads_last("q"), *k = heads_last("k"), *v = heads_last("v");
  auto* y = nn::attention(g, q, k, v, b.input("mask", mask), 1.0f / 8);
  return b.run(nn::permute(g, nn::reshape(g, y, {2, 13, 4, 64}), {0, 2, 1, 3}), {2, 4, 13, 64});
}

TEST(Attention, KeysMasked) {
  DQ_ASSERT_OK(const std::vector<int64_t> valid, read_integers(*units().source, "attention.key_valid"));
  Tensor mask({2, 1, 13, 13});
  for (int64_t i = 0; i < mask.count(); ++i)
    mask.data[static_cast<size_t>(i)] = valid[static_cast<size_t>(i / 169 * 13 + i % 13)] ? 0.0f : -INFINITY;
  EXPECT_TRUE(close(golden_attention(mask), units().f32("attention.masked.f32"), kProductTolerance));
}

TEST(Attention, CausalGrouped) {
  Tensor mask({1, 1, 13, 13});
  for (size_t i = 0; i < 169; ++i) mask.data[i] = i % 13 > i / 13 ? -INFINITY : 0.0f;
  EXPECT_TRUE(close(golden_attention(mask), units().f32("attention.causal_grouped.f32"), kProductTolerance));
}

Tensor golden_conv(bool upsample, const nn::Conv2dOptions& options) {
  Bench b;
  auto* x = b.input("x", units().f32("conv.in"));
  if (upsample) x = nn::upsample_nearest2(b.graph(), x);
  auto* y = nn::conv2d(b.graph(), x, b.input("w", units().f32("conv.weight")), b.input("b", units().f32("conv.bias")),
                       options);
  return b.run(y, {1, y->ne[2], y->ne[1], y->ne[0]});
}

TEST(Conv, Same) {
  EXPECT_TRUE(close(golden_conv(false, nn::Conv2dOptions::same(3)), units().f32("conv.same"), kProductTolerance));
}
TEST(Conv, DownPadsRightAndBottom) {
  EXPECT_TRUE(close(golden_conv(false, {2, 0, 1, 0, 1}), units().f32("conv.down"), kProductTolerance));
}
TEST(Conv, Up) {
  EXPECT_TRUE(close(golden_conv(true, nn::Conv2dOptions::same(3)), units().f32("conv.up"), kProductTolerance));
}

}  // namespace
}  // namespace danqing
