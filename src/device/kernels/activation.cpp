#include "device/kernels/activation.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/kernels/activation.cpp"
#include "device/kernels/targets.h"  // before highway.h
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "device/kernels/math-inl.h"
// clang-format on

#include <algorithm>
#include <cmath>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace danqing::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using DF = hn::ScalableTag<float>;
using V = hn::Vec<DF>;
constexpr int64_t kMost = 64;  // lanes of the widest vector, for tails

/// y = f(in[0][i], in[1][i], ...) for all i. The tail goes through a padded copy, so that every value is computed by
/// the same instructions wherever it stands.
template <int kInputs, class F>
HWY_INLINE void each(const float* const (&in)[kInputs], int64_t n, float* y, F f) {
  const DF d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto at = [&](const float* const(&p)[kInputs], int64_t i) {
    if constexpr (kInputs == 1)
      return f(hn::LoadU(d, p[0] + i));
    else if constexpr (kInputs == 2)
      return f(hn::LoadU(d, p[0] + i), hn::LoadU(d, p[1] + i));
    else
      return f(hn::LoadU(d, p[0] + i), hn::LoadU(d, p[1] + i), hn::LoadU(d, p[2] + i));
  };
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(at(in, i), d, y + i);
  if (i == n) return;
  alignas(64) float tail[kInputs][kMost] = {};
  const float* padded[kInputs];
  for (int k = 0; k < kInputs; ++k) {
    std::copy_n(in[k] + i, n - i, tail[k]);
    padded[k] = tail[k];
  }
  alignas(64) float result[kMost];
  hn::Store(at(padded, 0), d, result);
  std::copy_n(result, n - i, y + i);
}

void silu_row(const float* x, int64_t n, float* y) {
  each<1>({x}, n, y, [](V v) { return silu(DF(), v); });
}
void gelu_row(const float* x, int64_t n, float* y) {
  each<1>({x}, n, y, [](V v) { return gelu_erf(DF(), v); });
}
void silu_times(const float* gate, const float* x, int64_t n, float* y) {
  each<2>({gate, x}, n, y, [](V g, V v) { return hn::Mul(silu(DF(), g), v); });
}
void gelu_erf_times(const float* gate, const float* x, int64_t n, float* y) {
  each<2>({gate, x}, n, y, [](V g, V v) { return hn::Mul(gelu_erf(DF(), g), v); });
}
void multiply(const float* a, const float* b, int64_t n, float* y) {
  each<2>({a, b}, n, y, [](V p, V q) { return hn::Mul(p, q); });
}
void add(const float* a, const float* b, int64_t n, float* y) {
  each<2>({a, b}, n, y, [](V p, V q) { return hn::Add(p, q); });
}
void scale(const float* x, float s, int64_t n, float* y) {
  each<1>({x}, n, y, [s](V v) { return hn::Mul(v, hn::Set(DF(), s)); });
}
void add_scalar(const float* x, float s, int64_t n, float* y) {
  each<1>({x}, n, y, [s](V v) { return hn::Add(v, hn::Set(DF(), s)); });
}
void add_scaled(const float* x, float s, int64_t n, float* y) {
  each<2>({x, y}, n, y, [s](V v, V w) { return hn::MulAdd(v, hn::Set(DF(), s), w); });
}

void normalise(const float* x, float mean, float factor, const float* weight, const float* bias, int64_t n, float* y) {
  const V m = hn::Set(DF(), mean), s = hn::Set(DF(), factor);
  const auto unit = [=](V v) { return hn::Mul(hn::Sub(v, m), s); };
  if (weight && bias)
    each<3>({x, weight, bias}, n, y, [=](V v, V w, V b) { return hn::Add(hn::Mul(unit(v), w), b); });
  else if (weight)
    each<2>({x, weight}, n, y, [=](V v, V w) { return hn::Mul(unit(v), w); });
  else if (bias)
    each<2>({x, bias}, n, y, [=](V v, V b) { return hn::Add(unit(v), b); });
  else
    each<1>({x}, n, y, unit);
}

void modulate(const float* x, const float* scale, const float* shift, int64_t n, float* y) {
  const V one = hn::Set(DF(), 1.0f);
  if (shift)
    each<3>({x, scale, shift}, n, y, [=](V v, V s, V t) { return hn::Add(hn::Mul(v, hn::Add(s, one)), t); });
  else
    each<2>({x, scale}, n, y, [=](V v, V s) { return hn::Mul(v, hn::Add(s, one)); });
}

/// Sums of f(x) in f32 vectors over pieces, the pieces in f64.
template <class F>
HWY_INLINE double total(const float* x, int64_t n, F f) {
  const DF d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  constexpr int64_t kPiece = 512;
  double all = 0;
  for (int64_t begin = 0; begin < n; begin += kPiece) {
    const int64_t end = std::min(n, begin + kPiece);
    V s0 = hn::Zero(d), s1 = hn::Zero(d);
    int64_t i = begin;
    for (; i + 2 * lanes <= end; i += 2 * lanes) {
      s0 = hn::Add(s0, f(hn::LoadU(d, x + i)));
      s1 = hn::Add(s1, f(hn::LoadU(d, x + i + lanes)));
    }
    for (; i + lanes <= end; i += lanes) s0 = hn::Add(s0, f(hn::LoadU(d, x + i)));
    all += hn::GetLane(hn::SumOfLanes(d, hn::Add(s0, s1)));
    for (; i < end; ++i) all += hn::GetLane(f(hn::Set(d, x[i])));
  }
  return all;
}

double sum_squares(const float* x, int64_t n) {
  return total(x, n, [](V v) { return hn::Mul(v, v); });
}
double sum(const float* x, int64_t n) {
  return total(x, n, [](V v) { return v; });
}
double sum_squared_differences(const float* x, float mean, int64_t n) {
  const V m = hn::Set(DF(), mean);
  return total(x, n, [m](V v) {
    const V e = hn::Sub(v, m);
    return hn::Mul(e, e);
  });
}

float exp_minus(const float* x, int64_t n, float shift, float* y) {
  const DF d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const V s = hn::Set(d, shift);
  V sum = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const V e = exp(d, hn::Sub(hn::LoadU(d, x + i), s));
    sum = hn::Add(sum, e);
    hn::StoreU(e, d, y + i);
  }
  if (i < n) {  // into the same lanes, so that masked values behind the last one change no bit of the sum
    alignas(64) float rest[64];
    std::fill_n(rest, lanes, shift);
    std::copy(x + i, x + n, rest);
    const V e = hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(n - i)), exp(d, hn::Sub(hn::Load(d, rest), s)));
    sum = hn::Add(sum, e);
    hn::Store(e, d, rest);
    std::copy_n(rest, n - i, y + i);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

float maximum(const float* x, int64_t n) {
  const DF d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  V m = hn::Set(d, -std::numeric_limits<float>::infinity());
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) m = hn::Max(m, hn::LoadU(d, x + i));
  float all = hn::GetLane(hn::MaxOfLanes(d, m));
  for (; i < n; ++i) all = std::max(all, x[i]);
  return all;
}

}  // namespace danqing::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace danqing::kernels {
namespace {
HWY_EXPORT(silu_row);
HWY_EXPORT(gelu_row);
HWY_EXPORT(silu_times);
HWY_EXPORT(gelu_erf_times);
HWY_EXPORT(multiply);
HWY_EXPORT(add);
HWY_EXPORT(scale);
HWY_EXPORT(add_scalar);
HWY_EXPORT(add_scaled);
HWY_EXPORT(normalise);
HWY_EXPORT(modulate);
HWY_EXPORT(sum_squares);
HWY_EXPORT(sum);
HWY_EXPORT(sum_squared_differences);
HWY_EXPORT(exp_minus);
HWY_EXPORT(maximum);
}  // namespace

void silu(const float* x, int64_t n, float* y) { HWY_DYNAMIC_DISPATCH(silu_row)(x, n, y); }
void gelu_erf(const float* x, int64_t n, float* y) { HWY_DYNAMIC_DISPATCH(gelu_row)(x, n, y); }
void silu_times(const float* gate, const float* x, int64_t n, float* y) {
  HWY_DYNAMIC_DISPATCH(silu_times)(gate, x, n, y);
}
void gelu_erf_times(const float* gate, const float* x, int64_t n, float* y) {
  HWY_DYNAMIC_DISPATCH(gelu_erf_times)(gate, x, n, y);
}
void multiply(const float* a, const float* b, int64_t n, float* y) { HWY_DYNAMIC_DISPATCH(multiply)(a, b, n, y); }
void add(const float* a, const float* b, int64_t n, float* y) { HWY_DYNAMIC_DISPATCH(add)(a, b, n, y); }
void scale(const float* x, float s, int64_t n, float* y) { HWY_DYNAMIC_DISPATCH(scale)(x, s, n, y); }
void add_scalar(const float* x, float s, int64_t n, float* y) { HWY_DYNAMIC_DISPATCH(add_scalar)(x, s, n, y); }
void add_scaled(const float* x, float s, int64_t n, float* y) { HWY_DYNAMIC_DISPATCH(add_scaled)(x, s, n, y); }
void normalise(const float* x, float mean, float factor, const float* weight, const float* bias, int64_t n, float* y) {
  HWY_DYNAMIC_DISPATCH(normalise)(x, mean, factor, weight, bias, n, y);
}
void modulate(const float* x, const float* s, const float* shift, int64_t n, float* y) {
  HWY_DYNAMIC_DISPATCH(modulate)(x, s, shift, n, y);
}
double sum_squares(const float* x, int64_t n) { return HWY_DYNAMIC_DISPATCH(sum_squares)(x, n); }
double sum(const float* x, int64_t n) { return HWY_DYNAMIC_DISPATCH(sum)(x, n); }
double sum_squared_differences(const float* x, float mean, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(sum_squared_differences)(x, mean, n);
}
float exp_minus(const float* x, int64_t n, float shift, float* y) {
  return HWY_DYNAMIC_DISPATCH(exp_minus)(x, n, shift, y);
}
float maximum(const float* x, int64_t n) { return HWY_DYNAMIC_DISPATCH(maximum)(x, n); }

}  // namespace danqing::kernels
#endif
