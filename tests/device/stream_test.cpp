// Streamed weights under graphs that no model builds: layers of different sizes, any order, two graphs in turn.
#include <ggml.h>
#include <gmock/gmock.h>

#include <cstring>

#include "device/graph.h"
#include "device/weights.h"
#include "testing/testing.h"

namespace danqing {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kWidth = 32;
constexpr int kLayers = 5;

/// In memory: pages of it must never be given back. Layer i widens to 32 (i + 1) and narrows again, odd ones in bf16.
BoundTensors layers() {
  std::vector<TensorInfo> tensors;
  std::vector<std::byte> storage;
  std::vector<TensorSpec> specs;
  const auto add = [&](const std::string& name, int64_t out, int64_t in, DType dtype, int group) {
    const size_t n = static_cast<size_t>(out * in), size = n * (dtype == DType::f32 ? 4 : 2);
    storage.resize((storage.size() + 63) / 64 * 64);
    tensors.push_back({name, dtype, {out, in}, 0, storage.size(), size});
    storage.resize(storage.size() + size);
    for (size_t i = 0; i < n; ++i) {
      const float v = 0.03125f * static_cast<float>((i * 7 + storage.size()) % 13) - 0.1875f;  // exact in bf16
      uint32_t bits = 0;
      std::memcpy(&bits, &v, 4);
      const size_t bytes = size / n;
      for (size_t b = 0; b < bytes; ++b)
        storage[tensors.back().offset + i * bytes + b] = std::byte(bits >> (8 * (b + 4 - bytes)) & 0xff);
    }
    specs.push_back({name, {out, in}, WeightUse::matrix, false, group});
  };
  for (int i = 0; i < kLayers; ++i) {
    const DType dtype = i % 2 ? DType::bf16 : DType::f32;
    add("up." + std::to_string(i), kWidth * (i + 1), kWidth, dtype, i);
    add("down." + std::to_string(i), kWidth, kWidth * (i + 1), dtype, i);
  }
  add("last", kWidth, kWidth, DType::f32, -1);
  BoundTensors bound;
  bound.source = TensorSource::from_memory(tensors, storage);
  for (const TensorSpec& s : specs) bound.tensors.push_back({s, bound.source->find(s.name)});
  return bound;
}

/// Layers in the order given, through a view of one of their weights as well.
Runner chain(Device& device, const Weights& w, int64_t rows, const std::vector<int>& order) {
  auto g = std::make_unique<Graph>(device, 64);
  ggml_tensor* x = g->input("x", DType::f32, {rows, kWidth});
  for (size_t i = 0; i < order.size(); ++i) {
    const std::string n = std::to_string(order[i]);
    ggml_tensor* up = w.at("up." + n);
    ggml_tensor* view = ggml_view_2d(g->ctx(), up, up->ne[0], up->ne[1], up->nb[1], 0);
    ggml_tensor* y = ggml_mul_mat(g->ctx(), w.at("down." + n), ggml_tanh(g->ctx(), ggml_mul_mat(g->ctx(), view, x)));
    x = ggml_add(g->ctx(), x, y);
  }
  g->output("y", ggml_mul_mat(g->ctx(), w.at("last"), x));
  return Runner(std::move(g));
}

std::vector<float> run(Runner& r, int64_t rows) {
  std::vector<float> x(static_cast<size_t>(rows * kWidth));
  for (size_t i = 0; i < x.size(); ++i) x[i] = 0.01f * static_cast<float>(i % 31);
  EXPECT_TRUE(r.set("x", x).ok());
  const auto done = r.run();
  EXPECT_TRUE(done.ok()) << (done.ok() ? "" : done.error().message);
  const auto y = r.read("y");
  return y.ok() ? y->data : std::vector<float>();
}

TEST(StreamedWeights, AnyOrderAndTwoGraphsInTurn) {
  const BoundTensors bound = layers();
  const std::vector<std::vector<int>> orders = {{0, 1, 2, 3, 4}, {2, 0, 2, 4, 4, 1}, {3}};
  for (const std::optional<DType>& kept : {std::optional<DType>(), std::optional(DType::f16)}) {
    DQ_ASSERT_OK(const auto a, Device::open("cpu", {.threads = 1}));
    DQ_ASSERT_OK(const auto b, Device::open("cpu", {.threads = 1}));
    DQ_ASSERT_OK(const auto whole, Weights::load(a, bound, {kept}));
    DQ_ASSERT_OK(const auto streamed, Weights::load(b, bound, {kept, Residency::streamed, 1}));
    EXPECT_EQ(b->allocated(), streamed->sizes().device_bytes(Residency::streamed, 1));
    std::vector<Runner> expected, got;
    for (size_t i = 0; i < orders.size(); ++i) {
      expected.push_back(chain(*a, *whole, static_cast<int64_t>(i) + 1, orders[i]));
      got.push_back(chain(*b, *streamed, static_cast<int64_t>(i) + 1, orders[i]));
    }
    for (int repeat = 0; repeat < 3; ++repeat)
      for (size_t i = 0; i < orders.size(); ++i) {
        const std::vector<float> y = run(expected[i], static_cast<int64_t>(i) + 1);
        ASSERT_FALSE(y.empty());
        EXPECT_EQ(run(got[i], static_cast<int64_t>(i) + 1), y) << i;
      }
  }
}

TEST(StreamedWeights, TwoLayersInOneOperationAreAnError) {
  const BoundTensors bound = layers();
  DQ_ASSERT_OK(const auto d, Device::open("cpu", {.threads = 1}));
  DQ_ASSERT_OK(const auto w, Weights::load(d, bound, {{}, Residency::streamed, 0}));
  auto g = std::make_unique<Graph>(*d, 8);
  g->output("y", ggml_mul_mat(g->ctx(), w->at("up.0"), w->at("up.2")));
  Runner r(std::move(g));
  const auto out = r.run();
  ASSERT_FALSE(out.ok());
  EXPECT_THAT(out.error().message, HasSubstr("one streamed layer"));
}

TEST(StreamedWeights, TwoSetsInOneGraphAreAnError) {
  const BoundTensors bound = layers();
  DQ_ASSERT_OK(const auto d, Device::open("cpu", {.threads = 1}));
  DQ_ASSERT_OK(const auto w, Weights::load(d, bound, {{}, Residency::streamed, 0}));
  DQ_ASSERT_OK(const auto v, Weights::load(d, bound, {{}, Residency::streamed, 0}));
  auto g = std::make_unique<Graph>(*d, 8);
  ggml_tensor* x = g->input("x", DType::f32, {1, kWidth});
  g->output("y",
            ggml_add(g->ctx(), ggml_mul_mat(g->ctx(), w->at("up.0"), x), ggml_mul_mat(g->ctx(), v->at("up.0"), x)));
  Runner r(std::move(g));
  const auto out = r.run();
  ASSERT_FALSE(out.ok());
  EXPECT_THAT(out.error().message, HasSubstr("one set of streamed weights"));
}

TEST(StreamedWeights, ProgressCountsWhatStays) {
  const BoundTensors bound = layers();
  DQ_ASSERT_OK(const auto d, Device::open("cpu", {.threads = 1}));
  uint64_t last = 0, total = 0;
  DQ_ASSERT_OK(const auto w,
               Weights::load(d, bound, {DType::f16, Residency::streamed, 0}, [&](uint64_t done, uint64_t all) {
                 last = done, total = all;
                 return true;
               }));
  EXPECT_EQ(total, static_cast<uint64_t>(kWidth * kWidth * 4));  // "last" alone
  EXPECT_EQ(last, total);
  EXPECT_GT(w->sizes().stored_bytes, total);
}

}  // namespace
}  // namespace danqing
