// Every operation of nn on our kernels against its plain twin (the same call computed by ggml), and for 1, 2 and 3
// threads.
#include <cmath>
#include <functional>
#include <map>
#include <random>

#include "nn/nn.h"
#include "testing/testing.h"

namespace danqing {
namespace {

using testing::close;

Tensor random(const Shape& shape, unsigned seed, float std = 1.0f) {
  std::mt19937 gen(seed);
  std::normal_distribution<float> normal(0, std);
  Tensor t(shape);
  for (float& x : t.data) x = normal(gen);
  return t;
}

struct Input {
  std::string name;
  Tensor value;
  DType dtype = DType::f32;
};
using Tensors = std::map<std::string, ggml_tensor*>;
using Build = std::function<ggml_tensor*(Graph&, const Tensors&)>;

Tensor compute(const std::vector<Input>& inputs, const Build& build, const DeviceOptions& options) {
  auto device = Device::open("cpu", options);
  EXPECT_TRUE(device.ok());
  auto graph = std::make_unique<Graph>(**device, 64);
  Tensors t;
  for (const Input& in : inputs) t[in.name] = graph->input(in.name, in.dtype, in.value.shape);
  ggml_tensor* y = build(*graph, t);
  graph->output("y", y, {y->ne[3], y->ne[2], y->ne[1], y->ne[0]});
  Runner runner(std::move(graph));
  for (int run = 0; run < 2; ++run) {  // a second run finds what the first left in memory
    for (const Input& in : inputs) EXPECT_TRUE(runner.set(in.name, in.value.data).ok());
    const auto done = runner.run();
    EXPECT_TRUE(done.ok()) << (done.ok() ? "" : done.error().message);
  }
  auto read = runner.read("y");
  EXPECT_TRUE(read.ok());
  return read.ok() ? *read : Tensor();
}

/// Ours against ggml's within `tolerance` (relative L2), and the same bits for every number of threads.
void check(const std::vector<Input>& inputs, const Build& build, double tolerance,
           CpuPrecision precision = CpuPrecision::f32, const std::string& what = "") {
  const Tensor plain = compute(inputs, build, {.threads = 1, .kernels = CpuKernels::ggml});
  const Tensor one = compute(inputs, build, {.threads = 1, .precision = precision});
  EXPECT_TRUE(close(one, plain, tolerance)) << what;
  for (int threads : {2, 3})
    EXPECT_EQ(compute(inputs, build, {.threads = threads, .precision = precision}).data, one.data)
        << what << " " << threads;
}

constexpr double kF32 = 2e-6;  // f32 sums in another order

TEST(Linear, F32AndBias) {
  for (const auto& [rows, in, out] :
       {std::tuple(1, 7, 5), std::tuple(8, 64, 33), std::tuple(9, 300, 70), std::tuple(50, 129, 257)})
    check(
        {{"x", random({rows, in}, 1)}, {"w", random({out, in}, 2)}, {"b", random({out}, 3)}},
        [](Graph& g, const Tensors& t) { return nn::linear(g, t.at("x"), t.at("w"), t.at("b")); }, kF32);
}

TEST(Linear, BatchOfSequences) {
  check(
      {{"x", random({2, 9, 40}, 1)}, {"w", random({24, 40}, 2)}},
      [](Graph& g, const Tensors& t) { return nn::linear(g, t.at("x"), t.at("w")); }, kF32);
}

TEST(Linear, EveryWeightType) {
  // ggml rounds the other factor to the weight's type (bf16: 2^-9, f16: 2^-12, blocks: 8 bits); ours in f32 does not.
  // The difference is that rounding.
  for (const auto& [type, tolerance] :
       {std::pair(DType::bf16, 5e-3), std::pair(DType::f16, 6e-4), std::pair(DType::q8_0, 2e-2),
        std::pair(DType::q4_0, 2e-2), std::pair(DType::q4_k, 2e-2), std::pair(DType::q5_k, 2e-2),
        std::pair(DType::q6_k, 2e-2)})
    for (int rows : {1, 3, 8, 20, 150})
      check(
          {{"x", random({rows, 512}, 1)}, {"w", random({70, 512}, 2, 0.02f), type}},
          [](Graph& g, const Tensors& t) { return nn::linear(g, t.at("x"), t.at("w")); }, tolerance, CpuPrecision::f32,
          std::string(name(type)) + " rows " + std::to_string(rows));
}

TEST(Linear, IntegerFormats) {
  for (const auto& [precision, tolerance] : {std::pair(CpuPrecision::i16, 5e-3), std::pair(CpuPrecision::i8, 2e-2)})
    for (DType type : {DType::bf16, DType::q8_0})
      for (int rows : {3, 20, 150})
        check(
            {{"x", random({rows, 512}, 1)}, {"w", random({70, 512}, 2, 0.02f), type}},
            [](Graph& g, const Tensors& t) { return nn::linear(g, t.at("x"), t.at("w")); },
            type == DType::q8_0 ? 2e-2 : tolerance, precision);
}

TEST(Linear, F32WeightsStayExactInEveryPrecision) {
  const std::vector<Input> in{{"x", random({30, 200}, 1)}, {"w", random({40, 200}, 2)}};
  const Build build = [](Graph& g, const Tensors& t) { return nn::linear(g, t.at("x"), t.at("w")); };
  const Tensor exact = compute(in, build, {.threads = 1, .precision = CpuPrecision::f32});
  EXPECT_EQ(compute(in, build, {.threads = 1, .precision = CpuPrecision::i8}).data, exact.data);
}

TEST(GatedMlp, FusedOrNot) {
  for (int rows : {1, 5, 40}) {
    const std::vector<Input> in{
        {"x", random({rows, 64}, 1)}, {"gate", random({96, 64}, 2, 0.2f)}, {"up", random({96, 64}, 3, 0.2f)}};
    const auto both = [](auto f) {
      return [f](Graph& g, const Tensors& t) {
        ggml_tensor* up = nn::linear(g, t.at("x"), t.at("up"));
        return f(g, nn::linear(g, t.at("x"), t.at("gate")), up);
      };
    };
    check(in, both(nn::swiglu), kF32);
    check(in, both(nn::geglu_erf), kF32);
    check(
        {{"a", random({rows, 96}, 1)}, {"b", random({rows, 96}, 2)}},
        [](Graph& g, const Tensors& t) { return nn::geglu_erf(g, t.at("a"), t.at("b")); }, kF32);
  }
}

TEST(Norms, RowsOfAnyLength) {
  for (int64_t width : {1, 3, 64, 129, 2050}) {
    const std::vector<Input> in{
        {"x", random({2, 5, width}, 1, 3.0f)}, {"w", random({width}, 2)}, {"b", random({width}, 3)}};
    check(
        in, [](Graph& g, const Tensors& t) { return nn::rms_norm(g, t.at("x"), t.at("w"), 1e-6f); }, kF32);
    check(
        in, [](Graph& g, const Tensors& t) { return nn::rms_norm(g, t.at("x"), nullptr, 1e-6f); }, kF32);
    if (width == 1) continue;  // x - mean is zero: nothing but rounding to compare
    check(
        in, [](Graph& g, const Tensors& t) { return nn::layer_norm(g, t.at("x"), t.at("w"), t.at("b"), 1e-6f); }, kF32);
    check(
        in, [](Graph& g, const Tensors& t) { return nn::layer_norm(g, t.at("x"), nullptr, nullptr, 1e-6f); }, kF32);
  }
}

TEST(Norms, Modulation) {
  const std::vector<Input> in{{"x", random({2, 7, 48}, 1)}, {"s", random({2, 1, 48}, 2)}, {"t", random({2, 1, 48}, 3)}};
  check(
      in, [](Graph& g, const Tensors& t) { return nn::modulate(g, t.at("x"), t.at("s"), t.at("t")); }, kF32);
  check(
      in, [](Graph& g, const Tensors& t) { return nn::modulate(g, t.at("x"), t.at("s"), nullptr); }, kF32);
}

TEST(Elementwise, WithBroadcastAndViews) {
  const std::vector<Input> in{{"x", random({2, 7, 3, 48}, 1)},
                              {"y", random({2, 7, 3, 48}, 2)},
                              {"row", random({48}, 3)},
                              {"one", random({1, 7, 1, 1}, 4)},
                              {"token", random({2, 1, 1, 48}, 5)}};
  for (auto f : {nn::add, nn::mul}) {
    for (const char* b : {"y", "row", "one", "token"})
      check(
          in, [f, b](Graph& g, const Tensors& t) { return f(g, t.at("x"), t.at(b)); }, kF32);
    check(
        in,
        [f](Graph& g, const Tensors& t) {
          return f(g, nn::narrow(g, t.at("x"), 3, 10, 20), nn::narrow(g, t.at("y"), 3, 3, 20));
        },
        kF32);
    check(
        in,
        [f](Graph& g, const Tensors& t) {
          return f(g, nn::narrow(g, t.at("x"), 1, 2, 3), nn::narrow(g, t.at("y"), 1, 4, 3));
        },
        kF32);
  }
  for (auto f : {nn::silu, nn::gelu_erf, nn::tanh}) {
    check(
        in, [f](Graph& g, const Tensors& t) { return f(g, t.at("x")); }, kF32);
    check(
        in, [f](Graph& g, const Tensors& t) { return f(g, nn::narrow(g, t.at("x"), 3, 5, 11)); }, kF32);
  }
  check(
      in, [](Graph& g, const Tensors& t) { return nn::scale(g, t.at("x"), -2.5f); }, 0.0);
}

TEST(Shapes, CopiesAreExact) {
  const std::vector<Input> in{{"x", random({3, 5, 34, 21}, 1)}, {"y", random({3, 5, 34, 21}, 2)}};
  for (const std::vector<int>& order :
       {std::vector<int>{0, 1, 3, 2}, {0, 2, 1, 3}, {3, 2, 1, 0}, {1, 0, 2, 3}, {2, 3, 0, 1}})
    check(
        in, [&](Graph& g, const Tensors& t) { return nn::permute(g, t.at("x"), order); }, 0.0);
  for (int axis = 0; axis < 4; ++axis)
    check(
        in,
        [&](Graph& g, const Tensors& t) {
          return nn::concat(g, t.at("x"), nn::narrow(g, t.at("y"), axis, 1, 2), axis);
        },
        0.0);
}

TEST(Rope, BothStyles) {
  const std::vector<Input> in{{"x", random({2, 5, 3, 16}, 1)},
                              {"c", random({2, 5, 1, 16}, 2)},
                              {"s", random({2, 5, 1, 16}, 3)},
                              {"c1", random({1, 5, 1, 16}, 2)},
                              {"s1", random({1, 5, 1, 16}, 3)}};
  for (auto style : {nn::RopeStyle::half, nn::RopeStyle::adjacent}) {
    check(
        in, [&](Graph& g, const Tensors& t) { return nn::rope(g, t.at("x"), t.at("c"), t.at("s"), style); }, kF32);
    check(
        in, [&](Graph& g, const Tensors& t) { return nn::rope(g, t.at("x"), t.at("c1"), t.at("s1"), style); }, kF32);
  }
}

struct Attend {
  int64_t batch, queries, keys, heads, kv_heads, dim;
};

TEST(Attention, RandomShapes) {
  for (const Attend& a : {Attend{1, 1, 1, 1, 1, 4},
                          {2, 9, 9, 2, 1, 8},
                          {1, 8, 300, 4, 2, 16},
                          {2, 70, 300, 4, 4, 24},
                          {1, 100, 257, 6, 2, 33},
                          {1, 200, 31, 1, 1, 128},
                          {1, 13, 5000, 1, 1, 512}}) {
    std::vector<Input> in{{"q", random({a.batch, a.queries, a.heads, a.dim}, 1)},
                          {"k", random({a.batch, a.keys, a.kv_heads, a.dim}, 2)},
                          {"v", random({a.batch, a.keys, a.kv_heads, a.dim}, 3)}};
    const float scale = 1.0f / std::sqrt(static_cast<float>(a.dim));
    const auto attend = [&](const char* mask) {
      return [=](Graph& g, const Tensors& t) {
        return nn::attention(g, t.at("q"), t.at("k"), t.at("v"), mask ? t.at(mask) : nullptr, scale);
      };
    };
    check(in, attend(nullptr), 5e-6);
    Tensor causal({a.batch, 1, a.queries, a.keys}), padding({a.batch, 1, 1, a.keys});
    for (int64_t i = 0; i < causal.count(); ++i)
      if (i % a.keys > std::max<int64_t>(0, i / a.keys % a.queries + a.keys - a.queries))
        causal.data[static_cast<size_t>(i)] = -INFINITY;
    for (int64_t i = 0; i < padding.count(); ++i)
      if (i % a.keys > a.keys / 2 + i / a.keys) padding.data[static_cast<size_t>(i)] = -INFINITY;
    in.push_back({"causal", causal});
    in.push_back({"padding", padding});
    check(in, attend("causal"), 5e-6);
    check(in, attend("padding"), 5e-6);
  }
}

// Values that come out of an integer product: both products of attention go in 12 bits then (2^-13 of the largest of
// 128).
TEST(Attention, InIntegers) {
  for (const Attend& a : {Attend{1, 9, 9, 2, 1, 128},
                          {2, 100, 257, 4, 2, 128},
                          {1, 200, 31, 1, 1, 256},
                          {1, 13, 1500, 1, 1, 256},
                          {1, 13, 40, 1, 1, 512},
                          {1, 30, 30, 2, 2, 64}}) {
    Tensor padding({a.batch, 1, 1, a.keys});
    for (int64_t i = 0; i < padding.count(); ++i)
      if (i % a.keys > a.keys / 2 + i / a.keys) padding.data[static_cast<size_t>(i)] = -INFINITY;
    const int64_t width = a.kv_heads * a.dim;
    const std::vector<Input> in{{"q", random({a.batch, a.queries, a.heads, a.dim}, 1)},
                                {"k", random({a.batch, a.keys, a.kv_heads, a.dim}, 2)},
                                {"x", random({a.batch, a.keys, 64}, 3)},
                                {"w", random({width, 64}, 4, 0.125f), DType::bf16},
                                {"mask", padding}};
    for (const bool masked : {false, true}) {
      const Build build = [&](Graph& g, const Tensors& t) {
        ggml_tensor* v = nn::reshape(g, nn::linear(g, t.at("x"), t.at("w")), {a.batch, a.keys, a.kv_heads, a.dim});
        return nn::attention(g, t.at("q"), t.at("k"), v, masked ? t.at("mask") : nullptr,
                             1.0f / std::sqrt(static_cast<float>(a.dim)));
      };
      check(in, build, 5e-3, CpuPrecision::i16);  // ggml rounds x to bf16: 2^-9
      const Tensor exact = compute(in, build, {.threads = 1, .precision = CpuPrecision::f32});
      const Tensor integers = compute(in, build, {.threads = 1, .precision = CpuPrecision::i16});
      EXPECT_TRUE(close(integers, exact, 1e-3));
    }
  }
}

TEST(Attention, AllKeysMaskedGivesZeros) {
  for (int64_t queries : {2, 20}) {
    Tensor mask({1, 1, queries, 10});
    std::fill_n(mask.data.begin(), 10, -INFINITY);  // the first query sees nothing
    const Tensor y = compute(
        {{"q", random({1, queries, 1, 8}, 1)},
         {"k", random({1, 10, 1, 8}, 2)},
         {"v", random({1, 10, 1, 8}, 3)},
         {"m", mask}},
        [](Graph& g, const Tensors& t) { return nn::attention(g, t.at("q"), t.at("k"), t.at("v"), t.at("m"), 1.0f); },
        {.threads = 1});
    for (size_t i = 0; i < 8; ++i) EXPECT_EQ(y.data[i], 0.0f);
    EXPECT_NE(y.data[8], 0.0f);
  }
}

TEST(Attention, HalfPrecisionCaches) {
  for (DType type : {DType::f16, DType::bf16})
    for (int64_t queries : {1, 30}) {
      const std::vector<Input> in{{"q", random({1, queries, 4, 32}, 1)},
                                  {"k", random({1, 50, 2, 32}, 2), type},
                                  {"v", random({1, 50, 2, 32}, 3), type}};
      const Build build = [](Graph& g, const Tensors& t) {
        return nn::attention(g, t.at("q"), t.at("k"), t.at("v"), nullptr, 0.2f);
      };
      const Tensor one = compute(in, build, {.threads = 1});
      std::vector<Input> wide = in;
      for (Input& i : wide) i.dtype = DType::f32;
      // Rounding of keys and values to 8 or 11 bits.
      EXPECT_TRUE(close(one, compute(wide, build, {.threads = 1}), type == DType::bf16 ? 1e-2 : 1e-3));
      EXPECT_EQ(compute(in, build, {.threads = 3}).data, one.data);
    }
}

}  // namespace
}  // namespace danqing
