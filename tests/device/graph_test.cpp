#include "device/graph.h"

#include <gmock/gmock.h>

#include <atomic>
#include <random>

#include "device/state.h"
#include "testing/testing.h"

namespace danqing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::shared_ptr<Device> cpu(int threads = 2) {
  auto d = Device::open("cpu", {threads});
  EXPECT_TRUE(d.ok());
  return *d;
}

std::vector<float> values(const Runner& r, std::string_view name) {
  auto t = r.read(name);
  EXPECT_TRUE(t.ok()) << (t.ok() ? "" : t.error().message);
  return t.ok() ? t->data : std::vector<float>();
}

TEST(Graphs, InputsKeepTheirValuesBetweenRuns) {
  auto d = cpu();
  auto g = std::make_unique<Graph>(*d, 8);
  auto *a = g->input("a", DType::f32, {3}), *b = g->input("b", DType::f32, {3});
  g->output("y", ggml_scale(g->ctx(), ggml_add(g->ctx(), a, b), 2.0f));
  Runner r(std::move(g));
  ASSERT_TRUE(r.set("a", std::vector<float>{1, 2, 3}).ok());
  ASSERT_TRUE(r.set("b", std::vector<float>{10, 10, 10}).ok());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(r.run().ok());
  EXPECT_THAT(values(r, "y"), ElementsAre(22, 24, 26));
  ASSERT_TRUE(r.set("a", std::vector<float>{0, 0, 0}).ok());  // b still holds
  ASSERT_TRUE(r.run().ok());
  EXPECT_THAT(values(r, "y"), ElementsAre(20, 20, 20));
}

TEST(Graphs, WrongNamesAndSizesAreErrors) {
  auto d = cpu();
  auto g = std::make_unique<Graph>(*d, 8);
  auto* a = g->input("a", DType::f32, {3});
  auto* ids = g->input("ids", DType::i32, {2});
  g->output("y", ggml_scale(g->ctx(), a, 2.0f));
  g->output("rows", ggml_get_rows(g->ctx(), ggml_reshape_2d(g->ctx(), a, 1, 3), ids));
  Runner r(std::move(g));
  EXPECT_THAT(r.set("a", std::vector<float>(4)).error().message, HasSubstr("expected 3 values"));
  EXPECT_THAT(r.set("b", std::vector<float>(3)).error().message, HasSubstr("\"b\""));
  EXPECT_FALSE(r.set("a", std::vector<int32_t>(3)).ok());
  EXPECT_FALSE(r.set("ids", std::vector<float>(2)).ok());
  EXPECT_FALSE(r.read("z").ok());
  EXPECT_FALSE(Runner(std::make_unique<Graph>(*d, 8)).read("y").ok());
}

TEST(Graphs, AnInputNobodyReadsIsIgnored) {
  auto d = cpu();
  auto g = std::make_unique<Graph>(*d, 8);
  auto* a = g->input("a", DType::f32, {2});
  g->input("mask", DType::f32, {2, 2});
  g->output("y", ggml_scale(g->ctx(), a, 2.0f));
  Runner r(std::move(g));
  EXPECT_TRUE(r.set("mask", std::vector<float>(4)).ok());
  EXPECT_FALSE(r.set("mask", std::vector<float>(5)).ok());
  ASSERT_TRUE(r.set("a", std::vector<float>{1, 2}).ok());
  ASSERT_TRUE(r.run().ok());
  EXPECT_THAT(values(r, "y"), ElementsAre(2, 4));
}

TEST(Graphs, ViewsAndTransposesAreReadInOrder) {
  auto d = cpu();
  auto g = std::make_unique<Graph>(*d, 8);
  auto* a = g->input("a", DType::f32, {2, 3});
  auto* twice = ggml_scale(g->ctx(), a, 2.0f);
  g->output("transposed", ggml_transpose(g->ctx(), twice));
  g->output("shaped", ggml_reshape_1d(g->ctx(), twice, 6), {1, 2, 1, 3});
  g->output("later",
            ggml_sqr(g->ctx(), ggml_sqr(g->ctx(), ggml_reshape_1d(g->ctx(), twice, 6))));  // must not overwrite them
  Runner r(std::move(g));
  ASSERT_TRUE(r.set("a", std::vector<float>{0, 1, 2, 3, 4, 5}).ok());
  ASSERT_TRUE(r.run().ok());
  EXPECT_THAT(values(r, "transposed"), ElementsAre(0, 6, 2, 8, 4, 10));
  EXPECT_THAT(values(r, "shaped"), ElementsAre(0, 2, 4, 6, 8, 10));
  EXPECT_EQ(r.read("shaped")->shape, (Shape{1, 2, 1, 3}));
  EXPECT_EQ(r.read("transposed")->shape, (Shape{3, 2}));
}

TEST(Graphs, OutputsOfEveryPlainTypeAreWidened) {
  auto d = cpu();
  auto g = std::make_unique<Graph>(*d, 8);
  auto* a = g->input("a", DType::f32, {3});
  g->output("bf16", ggml_cast(g->ctx(), a, GGML_TYPE_BF16));
  g->output("f16", ggml_cast(g->ctx(), a, GGML_TYPE_F16));
  g->output("i32", g->input("ids", DType::i32, {3}));
  g->output("in16", ggml_cast(g->ctx(), g->input("half", DType::bf16, {3}), GGML_TYPE_F32));
  Runner r(std::move(g));
  ASSERT_TRUE(r.set("a", std::vector<float>{1, -2.5f, 1.001f}).ok());
  ASSERT_TRUE(r.set("half", std::vector<float>{1, -2.5f, 1.001f}).ok());
  ASSERT_TRUE(r.set("ids", std::vector<int32_t>{7, -1, 1 << 20}).ok());
  ASSERT_TRUE(r.run().ok());
  EXPECT_THAT(values(r, "bf16"), ElementsAre(1, -2.5f, 1));
  EXPECT_THAT(values(r, "f16"), ElementsAre(1, -2.5f, round_f16(1.001f)));
  EXPECT_THAT(values(r, "i32"), ElementsAre(7, -1, 1 << 20));
  EXPECT_THAT(values(r, "in16"), ElementsAre(1, -2.5f, 1));
}

TEST(Graphs, TapsCostNothingUnlessKept) {
  auto d = cpu();
  size_t bytes[2];
  for (bool keep : {false, true}) {
    auto g = std::make_unique<Graph>(*d, 64, keep);
    ggml_tensor* x = g->input("x", DType::f32, {4096});
    for (int i = 0; i < 10; ++i) {
      x = ggml_add(g->ctx(), ggml_sqr(g->ctx(), x), x);
      g->tap("layer." + std::to_string(i), x, {64, 64});
    }
    g->output("y", x);
    Runner r(std::move(g));
    bytes[keep] = r.measure();
    ASSERT_TRUE(r.set("x", std::vector<float>(4096, 0.5f)).ok());
    ASSERT_TRUE(r.run().ok());
    std::vector<std::string> names;
    ASSERT_TRUE(r.send_taps(
                     [&](const std::string& name, const Tensor& t) {
                       names.push_back(name);
                       EXPECT_EQ(t.shape, (Shape{64, 64}));
                       EXPECT_GE(t.data[4095], 0.75f);  // 0.5 + 0.25 after the first
                     },
                     "dit.")
                    .ok());
    EXPECT_EQ(names.size(), keep ? 10u : 0u);
    EXPECT_EQ(names.empty() ? "" : names[0], keep ? "dit.layer.0" : "");
  }
  EXPECT_GE(bytes[1], bytes[0] + 9 * 4096 * 4 - 3 * 4096 * 4);
}

TEST(Graphs, MeasureIsWhatIsAllocated) {
  auto d = cpu();
  auto g = std::make_unique<Graph>(*d, 8);
  auto* x = g->input("x", DType::f32, {100, 100});
  g->output("y", ggml_add(g->ctx(), ggml_sqr(g->ctx(), x), ggml_mul_mat(g->ctx(), x, x)));
  Runner r(std::move(g));
  const size_t measured = r.measure();
  EXPECT_EQ(d->allocated(), 0u);
  ASSERT_TRUE(r.prepare().ok());
  EXPECT_EQ(d->allocated(), measured);
  EXPECT_EQ(r.measure(), measured);
  { const Runner gone(std::move(r)); }
  EXPECT_EQ(d->allocated(), 0u);
}

TEST(Graphs, LargerThanAnnouncedIsFine) {
  auto d = cpu();
  auto g = std::make_unique<Graph>(*d, 1);
  ggml_tensor* x = g->input("x", DType::f32, {2});
  for (int i = 0; i < 5000; ++i) x = ggml_scale_bias(g->ctx(), x, 1.0f, 1.0f);
  g->output("y", x);
  Runner r(std::move(g));
  ASSERT_TRUE(r.set("x", std::vector<float>{0, 1}).ok());
  ASSERT_TRUE(r.run().ok());
  EXPECT_THAT(values(r, "y"), ElementsAre(5000, 5001));
}

TEST(Graphs, RequiredWritesComeBeforeLaterReads) {
  auto d = cpu();
  DQ_ASSERT_OK(auto state, State::create(d, {{"s", DType::f32, {4}}}, "test"));
  auto g = std::make_unique<Graph>(*d, 8);
  auto* x = g->input("x", DType::f32, {4});
  g->require(ggml_cpy(g->ctx(), x, state->at("s")));
  g->output("y", ggml_scale(g->ctx(), state->at("s"), 3.0f));
  Runner r(std::move(g));
  ASSERT_TRUE(r.set("x", std::vector<float>{1, 2, 3, 4}).ok());
  ASSERT_TRUE(r.run().ok());
  EXPECT_THAT(values(r, "y"), ElementsAre(3, 6, 9, 12));
}

TEST(Graphs, DoNotFitIsAnErrorAndCanBeTriedAgain) {
  auto d = cpu();
  auto g = std::make_unique<Graph>(*d, 8);
  g->output("y", ggml_sqr(g->ctx(), g->input("x", DType::f32, {1000})));
  Runner r(std::move(g));
  d->fail_allocation(1);
  const auto failed = r.set("x", std::vector<float>(1000, 2.0f));
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, ErrorCode::does_not_fit);
  EXPECT_EQ(d->allocated(), 0u);
  ASSERT_TRUE(r.set("x", std::vector<float>(1000, 2.0f)).ok());
  ASSERT_TRUE(r.run().ok());
  EXPECT_EQ(values(r, "y")[999], 4.0f);
}

std::unique_ptr<Graph> products(Device& d, int n, int64_t size) {
  auto g = std::make_unique<Graph>(d, 64);
  ggml_tensor* w = g->input("w", DType::f32, {size, size});
  ggml_tensor* x = w;
  for (int i = 0; i < n; ++i) x = ggml_rms_norm(g->ctx(), ggml_mul_mat(g->ctx(), w, x), 1e-6f);
  g->output("y", x);
  return g;
}

TEST(Graphs, StopWhenAsked) {
  auto d = cpu();
  Runner r(products(*d, 50, 64));
  ASSERT_TRUE(r.set("w", std::vector<float>(64 * 64, 0.01f)).ok());
  std::atomic<int> polls{0};
  const auto stopped = r.run([&] { return ++polls > 5; });
  ASSERT_FALSE(stopped.ok());
  EXPECT_EQ(stopped.error().code, ErrorCode::cancelled);
  EXPECT_LT(polls, 20);
  EXPECT_TRUE(r.run([] { return false; }).ok());  // usable afterwards
  EXPECT_TRUE(r.run().ok());
}

TEST(Graphs, ResultDoesNotDependOnTheThreads) {
  std::mt19937 gen(5);
  std::normal_distribution<float> normal;
  std::vector<float> w(96 * 96);
  for (float& v : w) v = normal(gen);
  std::vector<float> first;
  for (int threads : {1, 2, 3}) {
    auto d = cpu(threads);
    Runner r(products(*d, 4, 96));
    ASSERT_TRUE(r.set("w", w).ok());
    ASSERT_TRUE(r.run().ok());
    if (first.empty()) first = values(r, "y");
    EXPECT_EQ(values(r, "y"), first) << threads << " threads";
  }
}

}  // namespace
}  // namespace danqing
