// Convolutions, group norm, upsampling and what is joined to them, each against the same calls computed by plain ggml.
#include <functional>
#include <map>
#include <random>

#include "kernels/compute.h"
#include "nn/nn.h"
#include "testing/testing.h"

namespace danqing::nn {
namespace {

using testing::close;

// f32 sums in another order. F(2x2, 3x3) adds values of a tile before it multiplies: measured up to 6e-7.
constexpr double kF32 = 2e-6;

/// The result of our kernels, which must be near plain ggml's and the same for every number of threads.
Tensor check(const Inputs& inputs, const Build& build, double tolerance = kF32) {
  const Tensor plain = compute(inputs, build, {.threads = 1, .kernels = CpuKernels::ggml}).y;
  const Tensor one = compute(inputs, build, {.threads = 1}).y;
  EXPECT_TRUE(close(one, plain, tolerance));
  for (int threads : {2, 3}) EXPECT_EQ(compute(inputs, build, {.threads = threads}).y.data, one.data) << threads;
  return one;
}

struct Case {
  int64_t batch, c, o, h, w;
  int kernel;
  Conv2dOptions options;
  bool bias;
};

void PrintTo(const Case& c, std::ostream* os) {
  *os << c.batch << "x" << c.c << "->" << c.o << " " << c.h << "x" << c.w << " kernel " << c.kernel << " stride "
      << c.options.stride << " pads " << c.options.pad_left << c.options.pad_right << c.options.pad_top
      << c.options.pad_bottom;
}

Inputs inputs_of(const Case& c, unsigned seed) {
  const auto fan = static_cast<float>(c.c * c.kernel * c.kernel);
  return {{"x", random({c.batch, c.c, c.h, c.w}, seed)},
          {"k", random({c.o, c.c, c.kernel, c.kernel}, seed + 1, 1.0f / std::sqrt(fan))},
          {"b", random({c.o}, seed + 2)}};
}

Conv2dOptions pads(int stride, int left, int right, int top, int bottom) { return {stride, left, right, top, bottom}; }

class Conv : public ::testing::TestWithParam<Case> {};

TEST_P(Conv, AgreesWithGgml) {
  const Case c = GetParam();
  check(inputs_of(c, 1), [&](Graph& g, const Tensors& t) {
    return conv2d(g, t.at("x"), t.at("k"), c.bias ? t.at("b") : nullptr, c.options);
  });
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, Conv,
    ::testing::Values(
        Case{1, 16, 16, 1, 1, 3, Conv2dOptions::same(3), true},     // one pixel
        Case{1, 1, 1, 1, 1, 3, Conv2dOptions::same(3), true},       // one value
        Case{1, 1, 5, 7, 9, 3, Conv2dOptions::same(3), false},      // one channel
        Case{2, 17, 3, 5, 1, 3, Conv2dOptions::same(3), true},      // one column, few results
        Case{2, 40, 33, 9, 13, 3, Conv2dOptions::same(3), true},    // nothing divides anything
        Case{1, 300, 70, 12, 31, 3, Conv2dOptions::same(3), true},  // more than one piece of channels
        Case{3, 32, 64, 70, 66, 3, Conv2dOptions::same(3), true},   // several bands
        Case{1, 24, 20, 11, 10, 3, pads(1, 0, 0, 0, 0), true},      // the picture shrinks
        Case{1, 24, 20, 11, 10, 3, pads(1, 2, 0, 0, 1), true},
        Case{2, 16, 24, 12, 10, 3, pads(2, 0, 1, 0, 1), true},  // the encoder's
        Case{1, 20, 9, 13, 11, 3, pads(2, 1, 1, 1, 1), false}, Case{2, 3, 16, 10, 14, 3, Conv2dOptions::same(3), true},
        Case{1, 5, 7, 9, 8, 5, pads(1, 2, 2, 2, 2), true}, Case{2, 33, 47, 6, 7, 1, Conv2dOptions::same(1), true},
        Case{1, 1, 1, 1, 1, 1, Conv2dOptions::same(1), false},
        Case{1, 280, 17, 23, 19, 1, Conv2dOptions::same(1), true}, Case{1, 8, 8, 9, 9, 1, pads(2, 0, 0, 0, 0), true}));

TEST(Picture, RandomConvolutions) {
  std::mt19937 gen(7);
  const auto any = [&](int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(gen); };
  for (unsigned i = 0; i < 24; ++i) {
    const int kernel = any(0, 2) == 0 ? 1 : 3;
    Case c{any(1, 2),     any(1, 70), any(1, 70), any(1, 30), any(1, 30), kernel, Conv2dOptions::same(kernel),
           any(0, 1) == 1};
    SCOPED_TRACE(::testing::PrintToString(c));
    check(inputs_of(c, i), [&](Graph& g, const Tensors& t) {
      return conv2d(g, t.at("x"), t.at("k"), c.bias ? t.at("b") : nullptr, c.options);
    });
  }
}

TEST(Picture, GroupNorm) {
  struct Norm {
    int64_t batch, c, h, w;
    int groups;
    bool weight, bias;
  };
  for (const Norm& n :
       {Norm{1, 32, 8, 9, 8, true, true}, Norm{2, 32, 40, 41, 32, true, true}, Norm{2, 6, 1, 1, 2, false, false},
        Norm{1, 1, 5, 7, 1, true, false}, Norm{2, 48, 3, 1, 1, false, true}, Norm{1, 64, 70, 70, 32, true, true}}) {
    SCOPED_TRACE(::testing::PrintToString(n.c) + " channels");
    const Inputs in{
        {"x", random({n.batch, n.c, n.h, n.w}, 3, 2.0f, 0.5f)}, {"w", random({n.c}, 4)}, {"b", random({n.c}, 5)}};
    for (bool activated : {false, true})
      check(in, [&](Graph& g, const Tensors& t) {
        ggml_tensor* y =
            group_norm(g, t.at("x"), n.weight ? t.at("w") : nullptr, n.bias ? t.at("b") : nullptr, n.groups, 1e-6f);
        return activated ? silu(g, y) : y;
      });
  }
}

// The mean is a thousand times the spread: taking squares first would leave nothing of the variance. Expected values in
// f64.
TEST(Picture, GroupNormKeepsTheDigitsOfASmallVariance) {
  const int64_t c = 4, h = 50, w = 60, per = 2 * h * w;
  const Tensor x = random({1, c, h, w}, 11, 1.0f, 1000.0f);
  Tensor expected(x.shape);
  for (int64_t first = 0; first < c * h * w; first += per) {
    double sum = 0, squares = 0;
    for (int64_t i = first; i < first + per; ++i) sum += x.data[static_cast<size_t>(i)];
    const double mean = sum / static_cast<double>(per);
    for (int64_t i = first; i < first + per; ++i) {
      const double e = x.data[static_cast<size_t>(i)] - mean;
      squares += e * e;
    }
    const double factor = 1 / std::sqrt(squares / static_cast<double>(per) + 1e-6);
    for (int64_t i = first; i < first + per; ++i)
      expected.data[static_cast<size_t>(i)] = static_cast<float>((x.data[static_cast<size_t>(i)] - mean) * factor);
  }
  const auto build = [](Graph& g, const Tensors& t) { return group_norm(g, t.at("x"), nullptr, nullptr, 2, 1e-6f); };
  // The mean is rounded to f32: 1000 * 2^-24 of a spread of 1.
  EXPECT_TRUE(close(compute({{"x", x}}, build, {.threads = 2}).y, expected, 7e-5));
}

TEST(Picture, UpsamplingAloneIsExact) {
  for (const Shape& s : {Shape{1, 1, 1, 1}, Shape{2, 5, 3, 7}, Shape{1, 32, 20, 11}}) {
    const Inputs in{{"x", random(s, 5)}};
    check(
        in, [](Graph& g, const Tensors& t) { return upsample_nearest2(g, t.at("x")); }, 0);
  }
}

TEST(Picture, UpsamplingAndConvolution) {
  for (const Case& c :
       {Case{1, 16, 8, 1, 1, 3, Conv2dOptions::same(3), true}, Case{2, 37, 41, 5, 7, 3, Conv2dOptions::same(3), true},
        Case{1, 32, 64, 33, 40, 3, Conv2dOptions::same(3), false}, Case{1, 4, 6, 5, 4, 3, Conv2dOptions::same(3), true},
        Case{1, 20, 6, 5, 4, 3, pads(1, 0, 1, 1, 0), true}, Case{1, 20, 6, 5, 4, 1, Conv2dOptions::same(1), true}}) {
    SCOPED_TRACE(::testing::PrintToString(c));
    check(inputs_of(c, 9), [&](Graph& g, const Tensors& t) {
      return conv2d(g, upsample_nearest2(g, t.at("x")), t.at("k"), c.bias ? t.at("b") : nullptr, c.options);
    });
  }
}

// A residual block as the VAE has it, with and without a shortcut, and every intermediate looked at.
TEST(Picture, ResidualBlock) {
  for (const auto& [c, o] : {std::pair<int64_t, int64_t>{32, 32}, {48, 24}, {8, 16}}) {
    Inputs in{{"x", random({2, c, 19, 22}, 1)},
              {"k1", random({o, c, 3, 3}, 2, 0.1f)},
              {"k2", random({o, o, 3, 3}, 3, 0.1f)},
              {"ks", random({o, c, 1, 1}, 4, 0.2f)},
              {"b", random({o}, 5)},
              {"w1", random({c}, 6)},
              {"s1", random({c}, 7)},
              {"w2", random({o}, 8)},
              {"s2", random({o}, 9)}};
    const auto build = [c = c, o = o](Graph& g, const Tensors& t) {
      ggml_tensor* x = conv2d(g, t.at("x"), ggml_reshape_4d(g.ctx(), t.at("ks"), 1, 1, c, o), t.at("b"), {});
      if (c == o) x = add(g, x, t.at("x"));
      const Shape shape{2, o, 19, 22};
      g.tap("shortcut", x, shape);
      ggml_tensor* y = group_norm(g, t.at("x"), t.at("w1"), t.at("s1"), 8, 1e-6f);
      g.tap("norm1", y, {2, c, 19, 22});
      y = conv2d(g, silu(g, y), t.at("k1"), t.at("b"), Conv2dOptions::same(3));
      g.tap("conv1", y, shape);
      y = silu(g, group_norm(g, y, t.at("w2"), t.at("s2"), 8, 1e-6f));
      g.tap("activated2", y, shape);
      y = conv2d(g, y, t.at("k2"), t.at("b"), Conv2dOptions::same(3));
      g.tap("conv2", y, shape);
      y = add(g, x, y);
      g.tap("sum", y, shape);
      return silu(g, add(g, y, y));
    };
    const Tensor y = check(in, build);
    const Ran plain = compute(in, build, {.threads = 1, .kernels = CpuKernels::ggml}, true);
    const Ran ours = compute(in, build, {.threads = 2}, true);
    ASSERT_EQ(plain.taps.size(), 6u);
    ASSERT_EQ(ours.taps.size(), 6u);
    for (const auto& [name, value] : plain.taps) EXPECT_TRUE(close(ours.taps.at(name), value, kF32)) << name;
    EXPECT_EQ(ours.y.data, y.data);
  }
}

// What nn::add gets may be any mixture of orders, and both operands may be one convolution.
TEST(Picture, AdditionsOfEveryKind) {
  const int64_t c = 24;
  const Inputs in{{"x", random({1, c, 9, 7}, 1)}, {"k", random({c, c, 3, 3}, 2, 0.1f)}, {"v", random({1, c, 1, 1}, 3)}};
  const auto conv = [](Graph& g, const Tensors& t, ggml_tensor* x) {
    return conv2d(g, x, t.at("k"), nullptr, Conv2dOptions::same(3));
  };
  check(in, [&](Graph& g, const Tensors& t) { return add(g, conv(g, t, t.at("x")), t.at("x")); });
  check(in, [&](Graph& g, const Tensors& t) { return add(g, t.at("x"), conv(g, t, t.at("x"))); });
  check(in, [&](Graph& g, const Tensors& t) { return add(g, conv(g, t, t.at("x")), t.at("v")); });
  check(in, [&](Graph& g, const Tensors& t) {
    ggml_tensor* y = conv(g, t, t.at("x"));
    return add(g, y, y);
  });
  check(in, [&](Graph& g, const Tensors& t) {
    ggml_tensor* y = conv(g, t, t.at("x"));
    return add(g, conv(g, t, y), conv(g, t, add(g, y, conv(g, t, y))));
  });
  check(in, [&](Graph& g, const Tensors& t) { return mul(g, conv(g, t, t.at("x")), tanh(g, conv(g, t, t.at("x")))); });
}

// To rows of pixels and back: the attention of the middle block. Nothing is copied on the way.
TEST(Picture, ToPixelsAndBackCostsNoMemory) {
  const int64_t c = 32, h = 24, w = 20;
  const Inputs in{{"x", random({1, c, h, w}, 1)}, {"k", random({c, c, 3, 3}, 2, 0.1f)}, {"m", random({c, c}, 3, 0.1f)}};
  const auto through = [&](Graph& g, const Tensors& t, bool pixels) {
    ggml_tensor* x = conv2d(g, t.at("x"), t.at("k"), nullptr, Conv2dOptions::same(3));
    if (pixels) {
      ggml_tensor* rows = permute(g, reshape(g, x, {1, 1, c, h * w}), {0, 1, 3, 2});
      rows = reshape(g, rows, {1, h * w, c});
      rows = linear(g, rows, t.at("m"));
      rows = permute(g, reshape(g, rows, {1, 1, h * w, c}), {0, 1, 3, 2});
      x = reshape(g, rows, {1, c, h, w});
    }
    return conv2d(g, x, t.at("k"), nullptr, Conv2dOptions::same(3));
  };
  check(in, [&](Graph& g, const Tensors& t) { return through(g, t, true); });
  const auto names = [&](bool pixels) {
    auto device = Device::open("cpu", {.threads = 1});
    Graph g(**device, 64);
    Tensors t;
    for (const auto& [name, value] : in) t[name] = g.input(name, DType::f32, value.shape);
    std::vector<std::string> made;
    for (ggml_tensor* x = through(g, t, pixels); x && x->op != GGML_OP_NONE; x = x->src[0])
      if (x->op == GGML_OP_CUSTOM || x->op == GGML_OP_CONT) made.emplace_back(x->name);
    return made;
  };
  EXPECT_EQ(names(false), (std::vector<std::string>{"conv2d", "conv2d", "channels_last"}));
  EXPECT_EQ(names(true), (std::vector<std::string>{"conv2d", "linear", "conv2d", "channels_last"}));
}

// A picture of pixels seen as other shapes than the two above is put in order first.
TEST(Picture, OtherShapesOfAPicture) {
  const int64_t c = 16, h = 6, w = 10;
  const Inputs in{{"x", random({2, c, h, w}, 1)}, {"k", random({c, c, 3, 3}, 2, 0.1f)}};
  const auto conv = [](Graph& g, const Tensors& t) {
    return conv2d(g, t.at("x"), t.at("k"), nullptr, Conv2dOptions::same(3));
  };
  const std::vector<std::pair<const char*, std::function<ggml_tensor*(Graph&, ggml_tensor*, ggml_tensor*)>>> others{
      {"rows",
       [&](Graph& g, ggml_tensor* y, ggml_tensor*) {
         return reshape(g, y, {2, c * h, w});
       }},
      {"other sides",
       [&](Graph& g, ggml_tensor* y, ggml_tensor*) {
         return reshape(g, y, {2, c, w, h});
       }},
      {"half the channels",
       [&](Graph& g, ggml_tensor* y, ggml_tensor*) {
         return reshape(g, y, {2, c / 2, 2 * h, w});
       }},
      {"channels last",
       [&](Graph& g, ggml_tensor* y, ggml_tensor*) {
         return permute(g, y, {0, 2, 3, 1});
       }},
      {"mixed",
       [&](Graph& g, ggml_tensor* y, ggml_tensor*) {
         return permute(g, y, {3, 1, 0, 2});
       }},
      {"concat", [&](Graph& g, ggml_tensor* y, ggml_tensor* x) { return concat(g, y, x, 1); }},
      {"narrow", [&](Graph& g, ggml_tensor* y, ggml_tensor*) { return scale(g, narrow(g, y, 1, 3, 7), 2.0f); }},
  };
  for (const auto& [name, f] : others) {
    SCOPED_TRACE(name);
    check(in, [&f = f, &conv](Graph& g, const Tensors& t) { return f(g, conv(g, t), t.at("x")); });
  }
}

// Stacked blocks live in two pictures: one for the sum so far, one that each convolution is written over.
TEST(Picture, ConvolutionsReuseTheMemoryOfTheirInputs) {
  const int64_t c = 32, side = 128;
  Inputs in{{"x", random({1, c, side, side}, 1)}, {"k", random({c, c, 3, 3}, 2, 0.1f)}, {"w", random({c}, 3)}};
  const auto blocks = [&](Graph& g, const Tensors& t, int n) {
    const auto conv = [&](ggml_tensor* y) { return conv2d(g, y, t.at("k"), nullptr, Conv2dOptions::same(3)); };
    const auto activated = [&](ggml_tensor* y) { return silu(g, group_norm(g, y, t.at("w"), nullptr, 8, 1e-6f)); };
    ggml_tensor* x = conv(t.at("x"));
    for (int i = 0; i < n; ++i) x = add(g, x, conv(activated(conv(activated(x)))));
    return x;
  };
  check(in, [&](Graph& g, const Tensors& t) { return blocks(g, t, 3); });
  const auto bytes = [&](int n) {
    return compute(in, [&](Graph& g, const Tensors& t) { return blocks(g, t, n); }, {.threads = 1}).bytes;
  };
  EXPECT_LE(bytes(4), bytes(1) + 65536);
  const size_t picture = static_cast<size_t>(c * side * side) * sizeof(float);
  // The input and the result in plain order besides.
  EXPECT_LT(compute(in, [&](Graph& g, const Tensors& t) { return blocks(g, t, 3); }, {.threads = 1}).bytes,
            5 * picture + (size_t{8} << 20));
}

}  // namespace
}  // namespace danqing::nn
