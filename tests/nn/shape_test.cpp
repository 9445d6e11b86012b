// Shape work, products, convolutions and caches against plain loops.
#include <cmath>

#include "device/state.h"
#include "nn_testing.h"

namespace danqing {
namespace {

using nn_testing::Bench;
using nn_testing::random;
using testing::close;

Tensor permuted(const Tensor& t, const std::vector<int>& order) {
  Shape s;
  for (int a : order) s.push_back(t.shape[static_cast<size_t>(a)]);
  Tensor out(s);
  const size_t rank = s.size();
  for (int64_t n = 0; n < out.count(); ++n) {
    std::vector<int64_t> index(rank);
    for (int64_t rest = n, i = static_cast<int64_t>(rank) - 1; i >= 0; rest /= s[static_cast<size_t>(i)], --i)
      index[static_cast<size_t>(order[static_cast<size_t>(i)])] = rest % s[static_cast<size_t>(i)];
    int64_t from = 0;
    for (size_t a = 0; a < rank; ++a) from = from * t.shape[a] + index[a];
    out.data[static_cast<size_t>(n)] = t.data[static_cast<size_t>(from)];
  }
  return out;
}

TEST(Shapes, PermuteAsTorch) {
  for (const auto& [shape, order] : std::vector<std::pair<Shape, std::vector<int>>>{{{2, 3, 4, 5}, {0, 2, 1, 3}},
                                                                                    {{2, 3, 4, 5}, {3, 1, 0, 2}},
                                                                                    {{3, 4, 5}, {1, 2, 0}},
                                                                                    {{3, 4}, {1, 0}},
                                                                                    {{2, 3, 4, 5}, {1, 2, 3, 0}}}) {
    const Tensor x = random(shape, 1), y = permuted(x, order);
    Bench b;
    EXPECT_TRUE(close(b.run(nn::permute(b.graph(), b.input("x", x), order), y.shape), y, 0)) << to_string(shape);
  }
}

TEST(Shapes, ConcatAndNarrowOnEveryAxis) {
  for (int axis = 0; axis < 4; ++axis) {
    Shape half{2, 3, 4, 6};
    const Tensor a = random(half, 1), c = random(half, 2);
    Bench b;
    Graph& g = b.graph();
    auto* both = nn::concat(g, b.input("a", a), b.input("c", c), axis);
    const int64_t n = half[static_cast<size_t>(axis)];
    auto *back = nn::narrow(g, both, axis, n, n), *front = nn::narrow(g, both, axis, 0, n);
    g.output("front", front, half);
    EXPECT_TRUE(close(b.run(back, half), c, 0)) << axis;
    DQ_ASSERT_OK(const Tensor got, b.runner().read("front"));
    EXPECT_TRUE(close(got, a, 0)) << axis;
  }
}

TEST(Shapes, ReshapeOfAViewIsOfItsValues) {
  const Tensor x = random({4, 6}, 1);
  Bench b;
  auto* left = nn::narrow(b.graph(), b.input("x", x), 3, 0, 3);
  const Tensor y = b.run(nn::reshape(b.graph(), left, {2, 6}), {2, 6});
  for (size_t i = 0; i < 12; ++i) EXPECT_EQ(y.data[i], x.data[i / 3 * 6 + i % 3]);
}

TEST(Linear, BatchesAndBias) {
  const Tensor x = random({2, 5, 32}, 1), w = random({7, 32}, 2), bias = random({7}, 3);
  Tensor y({2, 5, 7});
  for (size_t r = 0; r < 10; ++r)
    for (size_t o = 0; o < 7; ++o) {
      double s = bias.data[o];
      for (size_t i = 0; i < 32; ++i) s += static_cast<double>(x.data[r * 32 + i]) * w.data[o * 32 + i];
      y.data[r * 7 + o] = static_cast<float>(s);
    }
  Bench b;
  auto* got = nn::linear(b.graph(), b.input("x", x), b.input("w", w), b.input("b", bias));
  EXPECT_TRUE(close(b.run(got, y.shape), y, 1e-6));  // f32 sums of 32 terms: 32 * 2^-24 / 2 at the very most
}

TEST(Modulate, ScaleAndShiftOfEachItem) {
  const Tensor x = random({2, 3, 8}, 1), scale = random({2, 1, 8}, 2), shift = random({2, 1, 8}, 3);
  Tensor y(x.shape);
  for (size_t i = 0; i < x.data.size(); ++i) {
    const size_t m = i / 24 * 8 + i % 8;
    y.data[i] = x.data[i] * (1 + scale.data[m]) + shift.data[m];
  }
  Bench b;
  auto* got = nn::modulate(b.graph(), b.input("x", x), b.input("scale", scale), b.input("shift", shift));
  EXPECT_TRUE(close(b.run(got, y.shape), y, 1e-7));  // the same three roundings, fused at most
}

TEST(GatedMlps, AreActivationTimesUp) {
  const Tensor gate = random({3, 40}, 1, 3), up = random({3, 40}, 2);
  Tensor swiglu(gate.shape), geglu(gate.shape);
  for (size_t i = 0; i < gate.data.size(); ++i) {
    const double x = gate.data[i];
    swiglu.data[i] = static_cast<float>(x / (1 + std::exp(-x)) * up.data[i]);
    geglu.data[i] = static_cast<float>(x / 2 * (1 + std::erf(x / std::sqrt(2.0))) * up.data[i]);
  }
  Bench a, b;
  EXPECT_TRUE(close(a.run(nn::swiglu(a.graph(), a.input("g", gate), a.input("u", up)), gate.shape), swiglu, 1e-6));
  EXPECT_TRUE(close(b.run(nn::geglu_erf(b.graph(), b.input("g", gate), b.input("u", up)), gate.shape), geglu, 1e-6));
}

Tensor convolved(const Tensor& x, const Tensor& w, const Tensor& bias, const nn::Conv2dOptions& o) {
  const int64_t b = x.shape[0], c = x.shape[1], h = x.shape[2], wd = x.shape[3], oc = w.shape[0], kh = w.shape[2],
                kw = w.shape[3];
  const int64_t oh = (h + o.pad_top + o.pad_bottom - kh) / o.stride + 1,
                ow = (wd + o.pad_left + o.pad_right - kw) / o.stride + 1;
  Tensor y({b, oc, oh, ow});
  for (int64_t n = 0; n < y.count(); ++n) {
    const int64_t ox = n % ow, oy = n / ow % oh, k = n / ow / oh % oc, item = n / ow / oh / oc;
    double s = bias.data[static_cast<size_t>(k)];
    for (int64_t i = 0; i < c; ++i)
      for (int64_t v = 0; v < kh; ++v)
        for (int64_t u = 0; u < kw; ++u) {
          const int64_t yy = oy * o.stride + v - o.pad_top, xx = ox * o.stride + u - o.pad_left;
          if (yy < 0 || yy >= h || xx < 0 || xx >= wd) continue;
          s += static_cast<double>(x.data[static_cast<size_t>(((item * c + i) * h + yy) * wd + xx)]) *
               w.data[static_cast<size_t>(((k * c + i) * kh + v) * kw + u)];
        }
    y.data[static_cast<size_t>(n)] = static_cast<float>(s);
  }
  return y;
}

TEST(Conv, KernelsStridesPaddingsAndBatches) {
  struct Case {
    int64_t kh, kw;
    nn::Conv2dOptions o;
  };
  for (const Case& k : {Case{3, 3, nn::Conv2dOptions::same(3)}, Case{1, 1, {}}, Case{1, 1, {2, 0, 0, 0, 0}},
                        Case{3, 3, {2, 0, 1, 0, 1}}, Case{2, 2, {2, 0, 0, 0, 0}}, Case{3, 5, {1, 0, 3, 2, 1}},
                        Case{5, 5, nn::Conv2dOptions::same(5)}}) {
    const Tensor x = random({2, 6, 9, 12}, 1), w = random({10, 6, k.kh, k.kw}, 2), bias = random({10}, 3);
    const Tensor y = convolved(x, w, bias, k.o);
    Bench b;
    auto* got = nn::conv2d(b.graph(), b.input("x", x), b.input("w", w), b.input("b", bias), k.o);
    EXPECT_TRUE(close(b.run(got, y.shape), y, 1e-6))
        << k.kh << "x" << k.kw << " stride " << k.o.stride;  // f32 sums of <= 150
  }
}

TEST(Conv, MemoryDoesNotGrowWithTheKernel) {
  // 3x3 over 128 channels at 1024x1024: im2col of the picture would be 4.5 GiB. Input and result are 512 MiB
  // each, a third one is there while the picture is turned over to channels-last and back; a band of rows is scratch.
  auto device = Device::open("cpu");
  ASSERT_TRUE(device.ok());
  auto g = std::make_unique<Graph>(**device, 64);
  auto* x = g->input("x", DType::f32, {1, 128, 1024, 1024});
  auto* w = g->input("w", DType::f32, {128, 128, 3, 3});
  g->output("y", nn::conv2d(*g, x, w, nullptr, nn::Conv2dOptions::same(3)));
  EXPECT_LT(Runner(std::move(g)).measure(), size_t{1620} << 20);
}

TEST(GroupNorm, WeightAndBiasGoWithTheChannel) {
  const Tensor x = random({2, 8, 3, 5}, 1), w = random({8}, 2), bias = random({8}, 3);
  Tensor y(x.shape);
  for (size_t group = 0; group < 8; ++group) {  // 2 items of 4 groups of 2 channels of 15 pixels
    double mean = 0, var = 0;
    for (size_t i = 0; i < 30; ++i) mean += x.data[group * 30 + i] / 30.0;
    for (size_t i = 0; i < 30; ++i) var += (x.data[group * 30 + i] - mean) * (x.data[group * 30 + i] - mean) / 30;
    for (size_t i = 0; i < 30; ++i) {
      const size_t n = group * 30 + i, c = n / 15 % 8;
      y.data[n] = static_cast<float>((x.data[n] - mean) / std::sqrt(var + 1e-6) * w.data[c] + bias.data[c]);
    }
  }
  Bench b;
  EXPECT_TRUE(
      close(b.run(nn::group_norm(b.graph(), b.input("x", x), b.input("w", w), b.input("b", bias), 4, 1e-6f), x.shape),
            y, 1e-6));
}

TEST(StoreRows, CacheGrowsFromRunToRun) {
  DQ_ASSERT_OK(auto device, Device::open("cpu"));
  DQ_ASSERT_OK(auto state,
               State::create(device, {{"k", DType::f32, {6, 4}}, {"v", DType::bf16, {6, 4}}}, "test cache"));
  EXPECT_EQ(state->bytes(), 6u * 4 * 4 + 6u * 4 * 2);
  auto graph = std::make_unique<Graph>(*device, 16);
  auto* ids = graph->input("ids", DType::i32, {2});
  auto* rows = graph->input("rows", DType::f32, {2, 4});
  graph->output("k", nn::scale(*graph, nn::store_rows(*graph, state->at("k"), rows, ids), 2.0f));
  nn::store_rows(*graph, state->at("v"), rows, ids);  // nothing reads it: it must be written all the same
  Runner first(std::move(graph));
  for (int step = 0; step < 3; ++step) {
    const std::vector<int32_t> at{2 * step, 2 * step + 1};
    ASSERT_TRUE(first.set("ids", at).ok());
    ASSERT_TRUE(first.set("rows", std::vector<float>(8, static_cast<float>(step + 1))).ok());
    ASSERT_TRUE(first.run().ok());
  }
  DQ_ASSERT_OK(const Tensor k, first.read("k"));
  EXPECT_EQ(k.data, (std::vector<float>{2, 2, 2, 2, 2, 2, 2, 2, 4, 4, 4, 4, 4, 4, 4, 4, 6, 6, 6, 6, 6, 6, 6, 6}));
  auto other = std::make_unique<Graph>(*device, 16);  // another graph sees what the first one left
  other->output("v", nn::scale(*other, ggml_cast(other->ctx(), state->at("v"), GGML_TYPE_F32), 1.0f));
  Runner second(std::move(other));
  ASSERT_TRUE(second.run().ok());
  DQ_ASSERT_OK(const Tensor v, second.read("v"));
  EXPECT_EQ(v.data[0], 1.0f);
  EXPECT_EQ(v.data[23], 3.0f);
  state->clear();
  ASSERT_TRUE(second.run().ok());
  DQ_ASSERT_OK(const Tensor cleared, second.read("v"));
  EXPECT_EQ(cleared.data[23], 0.0f);
}

}  // namespace
}  // namespace danqing
