#include "device/kernels/group_norm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/kernels/group_norm.cpp"
#include "device/kernels/targets.h"  // before highway.h
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "device/kernels/conv_tail-inl.h"
// clang-format on

#include <algorithm>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace danqing::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// sum[i] = sum over the pixels of f(x[i], i), four pixels at a time. `n` is the real channels.
template <class F>
HWY_INLINE void over_pixels(const float* HWY_RESTRICT x, int64_t pixels, int64_t n, float* HWY_RESTRICT sum, F f) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  std::fill_n(sum, n, 0.0f);
  int64_t p = 0;
  const auto group = [&](auto count) {
    constexpr int kCount = decltype(count)::value;
    const auto vector = [&](int64_t i, auto load, auto store) {
      auto t = f(load(x + p * n + i), i);
      for (int r = 1; r < kCount; ++r) t = hn::Add(t, f(load(x + (p + r) * n + i), i));
      store(hn::Add(load(sum + i), t), sum + i);
    };
    int64_t i = 0;
    for (; i + lanes <= n; i += lanes)
      vector(
          i, [&](const float* a) { return hn::LoadU(d, a); }, [&](auto v, float* a) { hn::StoreU(v, d, a); });
    if (const int64_t rest = n - i)
      vector(
          i, [&](const float* a) { return load_tail(d, a, rest); },
          [&](auto v, float* a) { store_tail(v, d, a, rest); });
    p += kCount;
  };
  while (p + 4 <= pixels) group(std::integral_constant<int, 4>());
  while (p < pixels) group(std::integral_constant<int, 1>());
}

void sums(const float* x, int64_t pixels, int64_t c, float* sum) {
  over_pixels(x, pixels, c, sum, [](auto v, int64_t) { return v; });
}

/// Of (x - mean)^2. `mean` has room for whole vectors.
void squares(const float* x, int64_t pixels, int64_t c, const float* mean, float* sum) {
  const hn::ScalableTag<float> d;
  over_pixels(x, pixels, c, sum, [&](auto v, int64_t i) {
    const auto e = hn::Sub(v, hn::LoadU(d, mean + i));
    return hn::Mul(e, e);
  });
}

}  // namespace danqing::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <cmath>
#include <functional>

#include "device/kernels/channels_last.h"
#include "device/kernels/conv.h"
#include "device/kernels/note.h"

namespace danqing::kernels {
namespace {
HWY_EXPORT(sums);
HWY_EXPORT(squares);

constexpr int64_t kPixels = 64;        ///< summed in f32, then in f64
constexpr int64_t kTaskPixels = 1024;  ///< of one partial result; fixed, so that the number of threads changes nothing
constexpr int64_t kPad = 64;           ///< floats behind a row of channels: a whole vector may be read there

struct Statistics {
  int64_t c, pixels, batch, groups;
  float eps;
  bool weight, bias;
  int64_t tasks() const { return (pixels + kTaskPixels - 1) / kTaskPixels; }
  /// [batch][task][2][c]: sums, and sums of squares.
  size_t partial_bytes() const {
    return (static_cast<size_t>(batch * tasks() * 2 * c) * sizeof(double) + 63) / 64 * 64;
  }
  /// Sums, means and squares of one piece.
  size_t worker_bytes() const { return (static_cast<size_t>(3 * (c + kPad)) * sizeof(float) + 63) / 64 * 64; }
};

/// Squares are taken about the piece's own mean, which f32 can hold; f64 then joins the pieces without loss.
void partial(const Statistics& s, const float* x, int64_t pixels, float* work, double* total) {
  float *sum = work, *mean = sum + s.c + kPad, *square = mean + s.c + kPad;
  std::fill_n(total, 2 * s.c, 0.0);
  for (int64_t p = 0; p < pixels; p += kPixels) {
    const int64_t n = std::min(kPixels, pixels - p);
    HWY_DYNAMIC_DISPATCH(sums)(x + p * s.c, n, s.c, sum);
    for (int64_t i = 0; i < s.c; ++i) mean[i] = sum[i] / static_cast<float>(n);
    HWY_DYNAMIC_DISPATCH(squares)(x + p * s.c, n, s.c, mean, square);
    for (int64_t i = 0; i < s.c; ++i) {
      const double t = sum[i], m = mean[i];
      total[i] += t;
      total[s.c + i] += square[i] + m * (2 * t - m * static_cast<double>(n));
    }
  }
}

/// out [3][c] from the partial results [task][2][c] of one picture.
void join(const Statistics& s, const double* partials, const float* weight, const float* bias, float* out) {
  const int64_t per = s.c / s.groups;
  const double n = static_cast<double>(per) * static_cast<double>(s.pixels);
  for (int64_t group = 0; group < s.groups; ++group) {
    double sum = 0, square = 0;
    for (int64_t task = 0; task < s.tasks(); ++task)
      for (int64_t i = group * per; i < (group + 1) * per; ++i) {
        sum += partials[task * 2 * s.c + i];
        square += partials[task * 2 * s.c + s.c + i];
      }
    const double mean = sum / n, variance = std::max(0.0, (square - mean * sum) / n);
    const double factor = 1.0 / std::sqrt(variance + static_cast<double>(s.eps));
    for (int64_t i = group * per; i < (group + 1) * per; ++i) {
      out[i] = static_cast<float>(mean);
      out[s.c + i] = static_cast<float>(weight ? factor * weight[i] : factor);
      out[2 * s.c + i] = bias ? bias[i] : 0.0f;
    }
  }
}

/// out [2][c] from the partial results [task][2][c] of one picture.
void join_channels(const Statistics& s, const double* partials, float* out) {
  for (int64_t i = 0; i < s.c; ++i) {
    double sum = 0, square = 0;
    for (int64_t task = 0; task < s.tasks(); ++task) {
      sum += partials[task * 2 * s.c + i];
      square += partials[task * 2 * s.c + s.c + i];
    }
    const double mean = sum / static_cast<double>(s.pixels);
    out[i] = static_cast<float>(mean);
    out[s.c + i] = static_cast<float>(std::max(0.0, square - mean * sum));
  }
}

/// Sums of every task, at the beginning of the scratch memory.
const double* all_partials(const Statistics& s, const OpRun& r) {
  const auto* x = static_cast<const float*>(r.out->src[0]->data);
  auto* partials = reinterpret_cast<double*>(r.scratch);
  std::byte* workers = r.scratch + s.partial_bytes();
  r.pool.run(s.batch * s.tasks(), [&](int64_t task, int worker) {
    const int64_t first = task % s.tasks() * kTaskPixels;
    auto* work = reinterpret_cast<float*>(workers + static_cast<size_t>(worker) * s.worker_bytes());
    partial(s, x + (task / s.tasks() * s.pixels + first) * s.c, std::min(kTaskPixels, s.pixels - first), work,
            partials + task * 2 * s.c);
  });
  return partials;
}

void run(const Statistics& s, const OpRun& r) {
  const double* partials = all_partials(s, r);
  const float* weight = s.weight ? static_cast<const float*>(r.out->src[1]->data) : nullptr;
  const float* bias = s.bias ? static_cast<const float*>(r.out->src[s.weight ? 2 : 1]->data) : nullptr;
  for (int64_t b = 0; b < s.batch; ++b)
    join(s, partials + b * s.tasks() * 2 * s.c, weight, bias, static_cast<float*>(r.out->data) + b * 3 * s.c);
}

size_t scratch_bytes(const Graph& g, const Statistics& s) {
  return s.partial_bytes() + static_cast<size_t>(g.device().pool()->threads()) * s.worker_bytes();
}

}  // namespace

ggml_tensor* channel_statistics(Graph& g, ggml_tensor* x) {
  ggml_tensor* b = channels_last(g, x);
  const Statistics s{b->ne[0], b->ne[1] * b->ne[2], b->ne[3], 1, 0, false, false};
  return op(g, "channel_statistics", {s.c, 2, 1, s.batch}, {b}, scratch_bytes(g, s), [s](const OpRun& r) {
    const double* partials = all_partials(s, r);
    for (int64_t i = 0; i < s.batch; ++i)
      join_channels(s, partials + i * s.tasks() * 2 * s.c, static_cast<float*>(r.out->data) + i * 2 * s.c);
  });
}

ggml_tensor* normalise(Graph& g, ggml_tensor* x, ggml_tensor* given, ggml_tensor* weight, ggml_tensor* bias) {
  ggml_tensor* b = channels_last(g, x);
  const int64_t c = b->ne[0];
  ggml_tensor* statistics = op(g, "given_statistics", {c, 3, 1, 1}, {given, weight, bias}, 0, [c](const OpRun& r) {
    const auto input = [&](int i) { return static_cast<const float*>(r.out->src[i]->data); };
    auto* out = static_cast<float*>(r.out->data);
    std::copy_n(input(0), c, out);
    std::transform(input(0) + c, input(0) + 2 * c, input(1), out + c, std::multiplies<>());
    std::copy_n(input(2), c, out + 2 * c);
  });
  return channels_last_view(g, apply_norm(g, b, statistics, Note{}));
}

ggml_tensor* group_norm(Graph& g, ggml_tensor* x, ggml_tensor* weight, ggml_tensor* bias, int groups, float eps) {
  ggml_tensor* b = channels_last(g, x);
  const Statistics s{b->ne[0], b->ne[1] * b->ne[2], b->ne[3], groups, eps, weight != nullptr, bias != nullptr};
  std::vector<ggml_tensor*> inputs{b};
  if (weight) inputs.push_back(weight);
  if (bias) inputs.push_back(bias);
  ggml_tensor* statistics = op(g, "group_norm_statistics", {s.c, 3, 1, s.batch}, inputs, scratch_bytes(g, s),
                               [s](const OpRun& r) { run(s, r); });
  return channels_last_view(g, apply_norm(g, b, statistics, Note{}));
}

}  // namespace danqing::kernels
#endif
