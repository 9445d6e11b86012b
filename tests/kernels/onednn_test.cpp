// Products in bf16 by oneDNN, against sums in f64. Where oneDNN has none for this processor the f32 tiles must serve.
#include "device/kernels/onednn.h"

#include <cmath>
#include <mutex>
#include <random>

#include "base/float_bits.h"
#include "nn/nn.h"
#include "testing/testing.h"

namespace danqing::kernels {
namespace {

// f32 sums of up to a few hundred products, in another order than f64's.
constexpr double kF32Sums = 1e-6;

struct Numbers {
  int64_t m, n, k, row;  // W's rows are `row` values apart
  std::vector<float> a;
  std::vector<uint16_t> w;
  Numbers(int64_t rows, int64_t columns, int64_t depth, int64_t gap, unsigned seed)
      : m(rows),
        n(columns),
        k(depth),
        row(depth + gap),
        a(static_cast<size_t>(m * k)),
        w(static_cast<size_t>(n * row)) {
    std::mt19937 gen(seed);
    std::normal_distribution<float> normal;
    for (float& x : a) x = normal(gen);
    for (uint16_t& x : w) x = f32_to_bf16(normal(gen));
  }
  Tensor expected() const {
    Tensor c({m, n});
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (int64_t p = 0; p < k; ++p)
          sum += static_cast<double>(bf16_to_f32(f32_to_bf16(a[static_cast<size_t>(i * k + p)]))) *
                 static_cast<double>(bf16_to_f32(w[static_cast<size_t>(j * row + p)]));
        c.data[static_cast<size_t>(i * n + j)] = static_cast<float>(sum);
      }
    return c;
  }
  Tensor product(const Bf16Product& p, int threads, const Bf16Product::Finish& finish = {}) const {
    Pool pool(threads);
    std::vector<std::byte> memory(p.scratch(threads) + 64);
    auto* scratch = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
    Tensor c({m, n});
    p.run(pool, a.data(), reinterpret_cast<const std::byte*>(w.data()), c.data.data(), scratch, finish);
    return c;
  }
  std::shared_ptr<const Bf16Product> create() const {
    return Bf16Product::create(m, n, k, static_cast<size_t>(row) * 2);
  }
};

bool has_bf16() { return Bf16Product::create(64, 64, 64, 128) != nullptr; }

TEST(Onednn, SaysWhatItIs) {
  const std::string text = onednn_text();
  if (onednn_available()) {
    EXPECT_TRUE(text.find('.') != std::string::npos && text.find('(') != std::string::npos) << text;
  } else {
    EXPECT_EQ(text, "absent");
  }
  if (onednn_prefers_bf16()) {
    EXPECT_TRUE(has_bf16());
  }
}

TEST(Onednn, RefusesWhatIsNoProduct) {
  EXPECT_EQ(Bf16Product::create(0, 4, 4, 8), nullptr);
  EXPECT_EQ(Bf16Product::create(4, -1, 4, 8), nullptr);
  EXPECT_EQ(Bf16Product::create(4, 4, 4, 9), nullptr);  // rows that begin in the middle of a value
}

TEST(Onednn, MultipliesRandomShapesTheSameOnEveryNumberOfThreads) {
  if (!has_bf16()) GTEST_SKIP() << "oneDNN " << onednn_text() << " has no fast bf16 product here";
  std::mt19937 gen(7);
  const auto pick = [&](int64_t last) { return std::uniform_int_distribution<int64_t>(1, last)(gen); };
  struct Size {
    int64_t m, n, k, gap;
  };
  std::vector<Size> sizes{{1, 1, 1, 0}, {9, 17, 33, 0}, {32, 256, 64, 0}, {520, 300, 40, 0}, {1100, 513, 24, 0}, {40, 48, 64, 32}};
  for (int i = 0; i < 6; ++i) sizes.push_back({pick(80), pick(300), pick(400), 0});
  int computed = 0;
  for (const auto& [m, n, k, gap] : sizes) {
    SCOPED_TRACE(std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k));
    const Numbers x(m, n, k, gap, static_cast<unsigned>(m + n));
    const auto p = x.create();
    if (!p) continue;  // shapes without a fast product go to the f32 tiles
    ++computed;
    const Tensor one = x.product(*p, 1);
    EXPECT_TRUE(testing::close(one, x.expected(), kF32Sums));
    for (int threads : {2, 3}) EXPECT_EQ(x.product(*p, threads).data, one.data) << threads;
  }
  EXPECT_GE(computed, static_cast<int>(sizes.size()) / 2);
}

TEST(Onednn, HandsEachValueOnOnce) {
  if (!has_bf16()) GTEST_SKIP() << "oneDNN " << onednn_text() << " has no fast bf16 product here";
  const Numbers x(530, 270, 32, 0, 3);
  const auto p = x.create();
  ASSERT_NE(p, nullptr);
  Tensor expected = x.product(*p, 1);
  for (float& v : expected.data) v = 2 * v + 1;
  const Tensor got = x.product(*p, 2, [](int64_t, int64_t, int64_t count, float* v) {
    for (int64_t i = 0; i < count; ++i) v[i] = 2 * v[i] + 1;
  });
  EXPECT_EQ(got.data, expected.data);
}

TEST(Onednn, KeepsNansAndInfinitiesToTheirRows) {
  if (!has_bf16()) GTEST_SKIP() << "oneDNN " << onednn_text() << " has no fast bf16 product here";
  Numbers x(40, 64, 48, 0, 5);
  x.a[3 * 48 + 7] = std::nanf("");
  x.a[35 * 48] = INFINITY;
  const auto p = x.create();
  ASSERT_NE(p, nullptr);
  const Tensor y = x.product(*p, 2);
  for (int64_t i = 0; i < 40; ++i)
    for (int64_t j = 0; j < 64; ++j)
      EXPECT_EQ(std::isfinite(y.data[static_cast<size_t>(i * 64 + j)]), i != 3 && i != 35) << i << "," << j;
}

/// y = swiglu(x Wg^T, x Wu^T) Wd^T + b with bf16 weights, as the networks ask for it.
Tensor gated_mlp(const DeviceOptions& options, const Tensor& x, const Tensor& wide, const Tensor& narrow) {
  auto device = Device::open("cpu", options);
  EXPECT_TRUE(device.ok());
  auto graph = std::make_unique<Graph>(**device, 64);
  ggml_tensor* in = graph->input("x", DType::f32, x.shape);
  ggml_tensor* gate = graph->input("gate", DType::bf16, wide.shape);
  ggml_tensor* up = graph->input("up", DType::bf16, wide.shape);
  ggml_tensor* down = graph->input("down", DType::bf16, narrow.shape);
  ggml_tensor* bias = graph->input("bias", DType::f32, {narrow.shape[0]});
  ggml_tensor* h = nn::swiglu(*graph, nn::linear(*graph, in, gate), nn::linear(*graph, in, up));
  graph->output("y", nn::linear(*graph, h, down, bias), {x.shape[0], narrow.shape[0]});
  Runner runner(std::move(graph));
  for (const auto& [name, t] : {std::pair("x", &x), {"gate", &wide}, {"up", &wide}, {"down", &narrow}})
    EXPECT_TRUE(runner.set(name, t->data).ok());
  EXPECT_TRUE(runner.set("bias", std::vector<float>(static_cast<size_t>(narrow.shape[0]), 0.5f)).ok());
  EXPECT_TRUE(runner.run().ok());
  auto y = runner.read("y");
  EXPECT_TRUE(y.ok());
  return y.ok() ? *y : Tensor();
}

TEST(Onednn, ServesTheNetworksWhenAskedFor) {
  const auto random = [](const Shape& shape, unsigned seed, float std) {
    std::mt19937 gen(seed);
    std::normal_distribution<float> normal(0, std);
    Tensor t(shape);
    for (float& v : t.data) v = bf16_to_f32(f32_to_bf16(normal(gen)));
    return t;
  };
  Tensor x = random({70, 96}, 1, 1.0f);
  for (float& v : x.data) v *= 1.001f;  // no longer bf16 values
  const Tensor wide = random({160, 96}, 2, 0.1f), narrow = random({96, 160}, 3, 0.1f);
  const Tensor exact = gated_mlp({.threads = 2, .precision = CpuPrecision::f32}, x, wide, narrow);
  const Tensor bf16 = gated_mlp({.threads = 2, .precision = CpuPrecision::bf16}, x, wide, narrow);
  if (!has_bf16()) {
    EXPECT_EQ(bf16.data, exact.data);
    return;
  }
  // Two roundings to 8 bits on the way: 2^-9 each at most, less on average. Measured 1.5e-3.
  EXPECT_TRUE(testing::close(bf16, exact, 4e-3));
  EXPECT_NE(bf16.data, exact.data);
  EXPECT_EQ(gated_mlp({.threads = 3, .precision = CpuPrecision::bf16}, x, wide, narrow).data, bf16.data);
}

}  // namespace
}  // namespace danqing::kernels
