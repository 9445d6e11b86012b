#include "tune/trials.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/try.h"
#include "nn/nn.h"

namespace danqing::tune {
namespace {

/// Sizes of one layer: `rows` tokens of `width`, a product to `inner`, heads of 128; or the side of a picture with
/// `width` channels.
struct Shape1 {
  int64_t rows, width, inner, heads, key_heads;
};

Shape1 shape_of(Stage stage, double scale) {
  const auto s = [&](int64_t n, int64_t step) {
    return std::max(step, static_cast<int64_t>(static_cast<double>(n) * scale) / step * step);
  };
  switch (stage) {
    case Stage::text: return {s(256, 32), s(3072, 128), s(9216, 128), s(32, 4), s(8, 1)};
    case Stage::denoiser: return {s(1088, 32), s(4096, 128), s(12288, 128), s(32, 4), s(32, 4)};
    case Stage::vae: break;
  }
  return {s(64, 8), s(512, 32), 0, 0, 0};
}

constexpr int64_t kHead = 128;
constexpr int64_t kComparedRows = 32;  // the CPU's f32 repeats so many of a card's

std::vector<float> numbers(int64_t n, uint32_t seed) {
  std::vector<float> v(static_cast<size_t>(n));
  for (float& x : v) {
    seed = seed * 1664525u + 1013904223u;
    x = static_cast<float>(seed >> 8) / 8388608.0f - 1;
  }
  return v;
}

/// A layer's work as a graph: `rows` of it, or a picture of `rows` x `rows`.
std::unique_ptr<Graph> build(Device& device, Stage stage, const Shape1& s, int64_t rows) {
  auto g = std::make_unique<Graph>(device, 64);
  if (stage == Stage::vae) {
    ggml_tensor* x = g->input("x", DType::f32, {1, s.width, rows, rows});
    ggml_tensor* w = g->input("w", device.is_cpu() ? DType::f32 : DType::f16, {s.width, s.width, 3, 3});
    g->output("y", nn::conv2d(*g, x, w, nullptr, nn::Conv2dOptions::same(3)), {1, s.width, rows, rows});
    return g;
  }
  ggml_tensor* x = g->input("x", DType::f32, {rows, s.width});
  ggml_tensor* w = g->input("w", DType::bf16, {s.inner, s.width});
  g->output("y", nn::linear(*g, x, w), {rows, s.inner});
  ggml_tensor* q = g->input("q", DType::f32, {1, rows, s.heads, kHead});
  ggml_tensor* k = g->input("k", DType::f32, {1, s.rows, s.key_heads, kHead});
  ggml_tensor* v = g->input("v", DType::f32, {1, s.rows, s.key_heads, kHead});
  g->output("a", nn::attention(*g, q, k, v, nullptr, 1 / std::sqrt(static_cast<float>(kHead))),
            {rows, s.heads * kHead});
  return g;
}

/// The same numbers for every device: queries and rows begin alike whatever their number.
Result<void> fill(Runner& r, Stage stage, const Shape1& s, int64_t rows) {
  const auto set = [&](const char* input, int64_t n, uint32_t seed, float times) -> Result<void> {
    std::vector<float> v = numbers(n, seed);
    for (float& x : v) x *= times;
    return r.set(input, std::span<const float>(v));
  };
  const float small = 1 / std::sqrt(static_cast<float>(s.width));
  if (stage == Stage::vae) {
    DQ_CHECK(set("x", s.width * rows * rows, 1, 1));
    return set("w", s.width * s.width * 9, 2, small / 3);
  }
  DQ_CHECK(set("x", rows * s.width, 1, 1));
  DQ_CHECK(set("w", s.inner * s.width, 2, small));
  DQ_CHECK(set("q", rows * s.heads * kHead, 3, 2));  // scores that differ, as real ones do
  DQ_CHECK(set("k", s.rows * s.key_heads * kHead, 4, 2));
  return set("v", s.rows * s.key_heads * kHead, 5, 1);
}

struct Outcome {
  Tensor y, attention;
  double seconds = 0;
};

Result<Outcome> run(Device& device, Stage stage, const Shape1& s, int64_t rows) {
  Runner r(build(device, stage, s, rows));
  DQ_CHECK(fill(r, stage, s, rows));
  DQ_CHECK(r.run());  // kernels are compiled in the first run
  const auto start = std::chrono::steady_clock::now();
  DQ_CHECK(r.run());
  Outcome o;
  o.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  DQ_TRY(o.y, r.read("y"));
  if (stage != Stage::vae) {
    DQ_TRY(o.attention, r.read("a"));
  }
  return o;
}

/// Relative L2 over the values that both have: the first of `got`.
double deviation(const Tensor& got, const Tensor& want) {
  double error = 0, size = 0;
  for (size_t i = 0; i < std::min(got.data.size(), want.data.size()); ++i) {
    const double d = double(got.data[i]) - double(want.data[i]);
    error += d * d;
    size += double(want.data[i]) * double(want.data[i]);
  }
  const double relative = std::sqrt(error / std::max(size, 1e-30));
  return std::isfinite(relative) ? relative : std::numeric_limits<double>::infinity();
}

}  // namespace

std::string_view name(Stage stage) {
  return stage == Stage::text ? "text" : stage == Stage::denoiser ? "denoiser" : "vae";
}

Result<Trial> run_trial(Device& device, Device& reference, Stage stage, bool flash, const TrialOptions& options) {
  const bool before = device.flash_attention();
  device.set_flash_attention(flash);
  struct Restore {
    Device& device;
    bool flash;
    ~Restore() { device.set_flash_attention(flash); }
  } restore{device, before};
  const Shape1 s = shape_of(stage, options.scale);
  const int64_t few = stage == Stage::vae ? std::min<int64_t>(8, s.rows) : std::min(kComparedRows, s.rows);
  DQ_TRY(const Outcome first, run(device, stage, s, few));
  DQ_TRY(const Outcome want, run(reference, stage, s, few));
  Trial t{stage, flash, deviation(first.y, want.y), 0};
  if (stage != Stage::vae) t.deviation = std::max(t.deviation, deviation(first.attention, want.attention));
  const double share = stage == Stage::vae ? static_cast<double>(few * few) / static_cast<double>(s.rows * s.rows)
                                           : static_cast<double>(few) / static_cast<double>(s.rows);
  t.seconds = first.seconds / share;
  if (few < s.rows && first.seconds < options.most_seconds && t.seconds < 8 * options.most_seconds) {
    DQ_TRY(const Outcome all, run(device, stage, s, s.rows));
    t.seconds = all.seconds;
    if (stage != Stage::vae)  // larger shapes go through other kernels: their first rows are the same numbers
      t.deviation = std::max({t.deviation, deviation(all.y, want.y), deviation(all.attention, want.attention)});
  }
  return t;
}

}  // namespace danqing::tune
