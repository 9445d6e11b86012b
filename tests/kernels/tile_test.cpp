// What a tile of a picture needs: convolutions whose edges lie inside the picture, crops, statistics of a part and
// norms by given ones. Each against the same part of the whole picture's result, computed by plain ggml.
#include <cmath>
#include <functional>
#include <map>
#include <random>

#include "kernels/compute.h"
#include "nn/nn.h"
#include "testing/testing.h"

namespace danqing::nn {
namespace {

using testing::close;

constexpr double kF32 = 2e-6;  // as in conv_test.cpp

Tensor compute(const Inputs& inputs, const Build& build, CpuKernels kernels) {
  return nn::compute(inputs, build, DeviceOptions{.threads = 2, .kernels = kernels}).y;
}

struct Part {
  int64_t top, left, h, w;
};
Tensor part_of(const Tensor& t, const Part& p) {
  Tensor out(Shape{t.size(0), t.size(1), p.h, p.w});
  float* to = out.data.data();
  for (int64_t plane = 0; plane < t.size(0) * t.size(1); ++plane)
    for (int64_t y = 0; y < p.h; ++y)
      to = std::copy_n(t.data.data() + (plane * t.size(2) + p.top + y) * t.size(3) + p.left, p.w, to);
  return out;
}

class Tiles : public ::testing::TestWithParam<CpuKernels> {};
INSTANTIATE_TEST_SUITE_P(Kernels, Tiles, ::testing::Values(CpuKernels::danqing, CpuKernels::ggml),
                         [](const auto& i) { return i.param == CpuKernels::ggml ? "ggml" : "danqing"; });

TEST_P(Tiles, ConvolutionsOfDoubledPicturesLeaveOutWhatTheirZerosSpoil) {
  for (int64_t channels : {5, 16, 35}) {
    const Inputs in{{"x", random({2, channels, 6, 9}, 1)},
                    {"k", random({20, channels, 3, 3}, 2, 0.1f)},
                    {"b", random({20}, 3)},
                    {"w", random({channels}, 4)}};
    const auto build = [](int left, int right, int top, int bottom, bool norm) {
      return [=](Graph& g, const Tensors& t) {
        ggml_tensor* x = t.at("x");
        if (norm) x = silu(g, group_norm(g, x, t.at("w"), nullptr, 1, 1e-6f));
        return conv2d(g, upsample_nearest2(g, x), t.at("k"), t.at("b"), {1, left, right, top, bottom});
      };
    };
    for (bool norm : {false, true}) {
      const Tensor whole = compute(in, build(1, 1, 1, 1, norm), CpuKernels::ggml);
      for (int i = 0; i < 81; ++i) {
        const int left = i % 3 - 1, right = i / 3 % 3 - 1, top = i / 9 % 3 - 1, bottom = i / 27 - 1;
        const Tensor y = compute(in, build(left, right, top, bottom, norm), GetParam());
        EXPECT_TRUE(close(y, part_of(whole, {1 - top, 1 - left, 10 + top + bottom, 16 + left + right}), kF32))
            << channels << " pads " << left << right << top << bottom;
      }
    }
  }
}

// 4x4 pixels of 16 channels and 2x4 of 32 take as many bytes; one may not lie over the other.
TEST_P(Tiles, ConvolutionsThatShrinkAreNotWrittenOverTheirInput) {
  for (const auto& [h, w, o] : {std::tuple{4, 4, 32}, std::tuple{6, 40, 24}, std::tuple{40, 6, 24}}) {
    const Inputs in{{"x", random({1, 16, h, w}, 1)},
                    {"k", random({16, 16, 3, 3}, 2, 0.1f)},
                    {"k2", random({o, 16, 3, 3}, 3, 0.1f)},
                    {"k3", random({o, o, 3, 3}, 3, 0.1f)}};
    const auto build = [](int vertical, int horizontal) {
      return [=](Graph& g, const Tensors& t) {
        ggml_tensor* x = conv2d(g, t.at("x"), t.at("k"), nullptr, Conv2dOptions::same(3));
        return conv2d(g, x, t.at("k2"), nullptr, {1, horizontal, horizontal, vertical, vertical});
      };
    };
    const Tensor whole = compute(in, build(1, 1), CpuKernels::ggml);
    EXPECT_TRUE(close(compute(in, build(0, 1), GetParam()), part_of(whole, {1, 0, h - 2, w}), kF32));
    EXPECT_TRUE(close(compute(in, build(1, 0), GetParam()), part_of(whole, {0, 1, h, w - 2}), kF32));
    EXPECT_TRUE(close(compute(in, build(0, 0), GetParam()), part_of(whole, {1, 1, h - 2, w - 2}), kF32));
  }
}

TEST_P(Tiles, Crop) {
  const Inputs in{{"x", random({2, 5, 7, 9}, 1)}, {"k", random({5, 5, 1, 1}, 2)}};
  const Tensor whole = compute(
      in, [](Graph& g, const Tensors& t) { return conv2d(g, t.at("x"), t.at("k"), nullptr, {}); }, CpuKernels::ggml);
  for (const Part& p : {Part{0, 0, 7, 9}, Part{2, 3, 4, 5}, Part{6, 8, 1, 1}, Part{0, 0, 1, 9}, Part{0, 4, 7, 1}}) {
    const Tensor plain = compute(
        in, [&](Graph& g, const Tensors& t) { return crop(g, t.at("x"), p.top, p.left, p.h, p.w); }, GetParam());
    EXPECT_EQ(plain.data, part_of(in.at("x"), p).data);
    const Tensor made = compute(
        in,
        [&](Graph& g, const Tensors& t) {
          return crop(g, conv2d(g, t.at("x"), t.at("k"), nullptr, {}), p.top, p.left, p.h, p.w);
        },
        GetParam());
    EXPECT_TRUE(close(made, part_of(whole, p), kF32));
  }
}

TEST_P(Tiles, StatisticsAndNormsByGivenOnes) {
  for (const auto& [c, h, w] :
       {std::tuple{12, 7, 9}, std::tuple{3, 1, 1}, std::tuple{1, 5, 4}, std::tuple{40, 70, 65}}) {
    const Inputs in{{"x", random({1, c, h, w}, 1, 2.0f, 50.0f)},
                    {"given", random({2, c}, 2)},
                    {"w", random({c}, 3)},
                    {"b", random({c}, 4)}};
    const Tensor s = compute(
        in, [](Graph& g, const Tensors& t) { return channel_statistics(g, t.at("x")); }, GetParam());
    ASSERT_EQ(s.count(), 2 * c);
    const Tensor y = compute(
        in, [](Graph& g, const Tensors& t) { return normalise(g, t.at("x"), t.at("given"), t.at("w"), t.at("b")); },
        GetParam());
    const int64_t pixels = h * w;
    Tensor expected = in.at("x");
    for (int64_t i = 0; i < c; ++i) {
      const float* x = in.at("x").data.data() + i * pixels;
      double mean = 0, squares = 0;
      for (int64_t p = 0; p < pixels; ++p) mean += x[p] / static_cast<double>(pixels);
      for (int64_t p = 0; p < pixels; ++p) squares += (x[p] - mean) * (x[p] - mean);
      EXPECT_NEAR(s.data[static_cast<size_t>(i)], mean, 50 * 1e-6);
      EXPECT_NEAR(s.data[static_cast<size_t>(c + i)], squares, squares * 1e-5 + 1e-9);
      const auto at = [&](const char* name, int64_t k) { return in.at(name).data[static_cast<size_t>(k)]; };
      for (int64_t p = 0; p < pixels; ++p)
        expected.data[static_cast<size_t>(i * pixels + p)] =
            (x[p] - at("given", i)) * (at("given", c + i) * at("w", i)) + at("b", i);
    }
    EXPECT_TRUE(close(y, expected, kF32));
  }
}

TEST_P(Tiles, PicturesBetweenGraphs) {
  const Inputs in{{"x", random({1, 3, 5, 4}, 1)}};  // [B, H, W, C]
  const Tensor y = compute(
      in, [](Graph& g, const Tensors& t) { return from_channels_last(g, t.at("x")); }, GetParam());
  for (int64_t c = 0; c < 4; ++c)
    for (int64_t p = 0; p < 15; ++p)
      EXPECT_EQ(y.data[static_cast<size_t>(c * 15 + p)], in.at("x").data[static_cast<size_t>(p * 4 + c)]);
  const Tensor back = compute(
      in, [](Graph& g, const Tensors& t) { return to_channels_last(g, from_channels_last(g, t.at("x"))); }, GetParam());
  EXPECT_EQ(back.data, in.at("x").data);
}

}  // namespace
}  // namespace danqing::nn
