#include "device/kernels/conv_inner.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/kernels/conv_inner.cpp"
#include "device/kernels/targets.h"  // before highway.h
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "device/kernels/conv_tail-inl.h"
#include "device/kernels/math-inl.h"
// clang-format on

#include <algorithm>

HWY_BEFORE_NAMESPACE();
namespace danqing::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using DF = hn::CappedTag<float, kChannelBlock>;
using V = hn::Vec<DF>;

// As in micro.cpp: as many accumulators as the registers hold. Rows of A are read where they lie, three from one
// address.
constexpr int kRows = HWY_TARGET <= HWY_AVX3 ? 12 : 6;
constexpr int kTriples = kRows / 3;

HWY_INLINE int64_t lanes_of() { return static_cast<int64_t>(hn::Lanes(DF())); }

template <bool kNorm, bool kSilu>
HWY_INLINE void prepare(const float* HWY_RESTRICT x, int64_t pixels, int64_t c, const ChannelNorm* norm,
                        float* HWY_RESTRICT out, int64_t stride) {
  const DF d;
  const int64_t lanes = lanes_of(), whole = c / lanes * lanes, rest = c - whole;
  const int64_t zeros_end = std::min(padded_channels(c), stride);
  const auto value = [&](V v, V mean, V factor, V shift) {
    if constexpr (kNorm) v = hn::MulAdd(hn::Sub(v, mean), factor, shift);
    if constexpr (kSilu) v = silu(d, v);
    return v;
  };
  const V zero = hn::Zero(d);
  for (int64_t p = 0; p < pixels; ++p, x += c, out += stride) {
    for (int64_t i = 0; i < whole; i += lanes) {
      if constexpr (kNorm)
        hn::StoreU(value(hn::LoadU(d, x + i), hn::LoadU(d, norm->mean + i), hn::LoadU(d, norm->factor + i),
                         hn::LoadU(d, norm->shift + i)),
                   d, out + i);
      else
        hn::StoreU(value(hn::LoadU(d, x + i), zero, zero, zero), d, out + i);
    }
    if (rest) {
      V v = load_tail(d, x + whole, rest);
      if constexpr (kNorm)
        v = value(v, load_tail(d, norm->mean + whole, rest), load_tail(d, norm->factor + whole, rest),
                  load_tail(d, norm->shift + whole, rest));
      store_tail(v, d, out + whole, rest);
    }
    if (c < zeros_end) std::fill(out + c, out + zeros_end, 0.0f);
  }
}

void prepare_any(const float* x, int64_t pixels, int64_t c, const ChannelNorm* norm, float* out, int64_t stride) {
  if (!norm) return prepare<false, false>(x, pixels, c, norm, out, stride);
  return norm->silu ? prepare<true, true>(x, pixels, c, norm, out, stride)
                    : prepare<true, false>(x, pixels, c, norm, out, stride);
}

void product_rows(int64_t rows, int64_t k, const float* HWY_RESTRICT a, int64_t lda, const float* HWY_RESTRICT b,
                  float* HWY_RESTRICT c, int64_t ldc, bool add) {
  const DF d;
  const int64_t lanes = lanes_of();
  for (int64_t first = 0; first < rows; first += kRows) {
    V sum[kRows][2];
    DANQING_UNROLL
    for (int i = 0; i < kRows; ++i) sum[i][0] = sum[i][1] = hn::Zero(d);
    const float* triple[kTriples];
    DANQING_UNROLL
    for (int t = 0; t < kTriples; ++t) triple[t] = a + (first + 3 * t) * lda;
    const float* p = b;
    for (int64_t j = 0; j < k; ++j) {
      const V b0 = hn::Load(d, p), b1 = hn::Load(d, p + lanes);
      p += 2 * lanes;
      DANQING_UNROLL
      for (int t = 0; t < kTriples; ++t) {
        DANQING_UNROLL
        for (int i = 0; i < 3; ++i) {
          const V x = hn::Set(d, triple[t][i * lda]);
          sum[3 * t + i][0] = hn::MulAdd(x, b0, sum[3 * t + i][0]);
          sum[3 * t + i][1] = hn::MulAdd(x, b1, sum[3 * t + i][1]);
        }
        ++triple[t];
      }
    }
    DANQING_UNROLL
    for (int i = 0; i < kRows; ++i) {
      float* row = c + (first + i) * ldc;
      if (add) {
        sum[i][0] = hn::Add(sum[i][0], hn::LoadU(d, row));
        sum[i][1] = hn::Add(sum[i][1], hn::LoadU(d, row + lanes));
      }
      hn::StoreU(sum[i][0], d, row);
      hn::StoreU(sum[i][1], d, row + lanes);
    }
  }
}

ProductTile tile() { return {kRows, 2 * lanes_of()}; }

void input(const float* const* rows, int64_t c, float* HWY_RESTRICT out, int64_t plane) {
  const DF d;
  const int64_t lanes = lanes_of();
  for (int64_t i = 0; i < c; i += lanes) {
    V t[4][4];
    DANQING_UNROLL
    for (int s = 0; s < 4; ++s) {
      const V d0 = hn::LoadU(d, rows[0] + s * c + i), d1 = hn::LoadU(d, rows[1] + s * c + i);
      const V d2 = hn::LoadU(d, rows[2] + s * c + i), d3 = hn::LoadU(d, rows[3] + s * c + i);
      t[0][s] = hn::Sub(d0, d2);
      t[1][s] = hn::Add(d1, d2);
      t[2][s] = hn::Sub(d2, d1);
      t[3][s] = hn::Sub(d1, d3);
    }
    DANQING_UNROLL
    for (int u = 0; u < 4; ++u) {
      float* to = out + 4 * u * plane + i;
      hn::StoreU(hn::Sub(t[u][0], t[u][2]), d, to);
      hn::StoreU(hn::Add(t[u][1], t[u][2]), d, to + plane);
      hn::StoreU(hn::Sub(t[u][2], t[u][1]), d, to + 2 * plane);
      hn::StoreU(hn::Sub(t[u][1], t[u][3]), d, to + 3 * plane);
    }
  }
}

void input_doubled(const float* const* rows, int64_t c, float* HWY_RESTRICT out, int64_t plane) {
  const DF d;
  const int64_t lanes = lanes_of();
  for (int64_t i = 0; i < c; i += lanes) {
    V t[3][3];
    DANQING_UNROLL
    for (int s = 0; s < 3; ++s) {
      const V d0 = hn::LoadU(d, rows[0] + s * c + i), d1 = hn::LoadU(d, rows[1] + s * c + i);
      const V d2 = hn::LoadU(d, rows[2] + s * c + i);
      t[0][s] = hn::Sub(d0, d1);
      t[1][s] = d1;
      t[2][s] = hn::Sub(d1, d2);
    }
    DANQING_UNROLL
    for (int u = 0; u < 3; ++u) {
      float* to = out + 3 * u * plane + i;
      hn::StoreU(hn::Sub(t[u][0], t[u][1]), d, to);
      hn::StoreU(t[u][1], d, to + plane);
      hn::StoreU(hn::Sub(t[u][1], t[u][2]), d, to + 2 * plane);
    }
  }
}

/// For one vector of channels. `load` and `store` take care of the end of the channels.
template <bool kDoubled, class Load, class Store>
HWY_INLINE void output_vector(const float* HWY_RESTRICT m, int64_t plane, const Destination& to, int64_t i, Load load,
                              Store store) {
  const DF d;
  constexpr int kSide = kDoubled ? 3 : 4;
  V t[2][kSide];
  DANQING_UNROLL
  for (int s = 0; s < kSide; ++s) {
    const float* column = m + s * plane + i;
    const V m0 = hn::LoadU(d, column), m1 = hn::LoadU(d, column + kSide * plane);
    const V m2 = hn::LoadU(d, column + 2 * kSide * plane);
    if constexpr (kDoubled) {
      t[0][s] = hn::Add(m0, m1);
      t[1][s] = hn::Sub(m1, m2);
    } else {
      const V m3 = hn::LoadU(d, column + 3 * kSide * plane);
      t[0][s] = hn::Add(hn::Add(m0, m1), m2);
      t[1][s] = hn::Sub(hn::Sub(m1, m2), m3);
    }
  }
  const V bias = to.bias ? load(to.bias + i) : hn::Zero(d);
  DANQING_UNROLL
  for (int u = 0; u < 2; ++u) {
    V y[2];
    if constexpr (kDoubled) {
      y[0] = hn::Add(t[u][0], t[u][1]);
      y[1] = hn::Sub(t[u][1], t[u][2]);
    } else {
      y[0] = hn::Add(hn::Add(t[u][0], t[u][1]), t[u][2]);
      y[1] = hn::Sub(hn::Sub(t[u][1], t[u][2]), t[u][3]);
    }
    DANQING_UNROLL
    for (int v = 0; v < 2; ++v) {
      const int64_t at = to.offset[2 * u + v];
      if (at < 0) continue;
      V value = hn::Add(y[v], bias);
      if (to.residual) value = hn::Add(value, load(to.residual + at + i));
      store(value, to.y + at + i);
    }
  }
}

template <bool kDoubled>
void output(const float* m, int64_t plane, int64_t n, const Destination& to) {
  const DF d;
  const int64_t lanes = lanes_of();
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    output_vector<kDoubled>(
        m, plane, to, i, [&](const float* p) { return hn::LoadU(d, p); }, [&](V v, float* p) { hn::StoreU(v, d, p); });
  if (const int64_t rest = n - i)
    output_vector<kDoubled>(
        m, plane, to, i, [&](const float* p) { return load_tail(d, p, rest); },
        [&](V v, float* p) { store_tail(v, d, p, rest); });
}
void output_plain(const float* m, int64_t plane, int64_t n, const Destination& to) { output<false>(m, plane, n, to); }
void output_doubled(const float* m, int64_t plane, int64_t n, const Destination& to) { output<true>(m, plane, n, to); }

void finish(const float* HWY_RESTRICT m, int64_t n, const float* bias, const float* residual, float* y) {
  const DF d;
  const int64_t lanes = lanes_of();
  const auto vector = [&](int64_t i, auto load, auto store) {
    V v = load(m + i);
    if (bias) v = hn::Add(v, load(bias + i));
    if (residual) v = hn::Add(v, load(residual + i));
    store(v, y + i);
  };
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    vector(
        i, [&](const float* p) { return hn::LoadU(d, p); }, [&](V v, float* p) { hn::StoreU(v, d, p); });
  if (const int64_t rest = n - i)
    vector(
        i, [&](const float* p) { return load_tail(d, p, rest); }, [&](V v, float* p) { store_tail(v, d, p, rest); });
}

}  // namespace danqing::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace danqing::kernels {
namespace {
HWY_EXPORT(prepare_any);
HWY_EXPORT(product_rows);
HWY_EXPORT(tile);
HWY_EXPORT(input);
HWY_EXPORT(input_doubled);
HWY_EXPORT(output_plain);
HWY_EXPORT(output_doubled);
HWY_EXPORT(finish);
}  // namespace

void prepare_pixels(const float* x, int64_t pixels, int64_t c, const ChannelNorm* norm, float* out, int64_t stride) {
  HWY_DYNAMIC_DISPATCH(prepare_any)(x, pixels, c, norm, out, stride);
}
ProductTile product_tile() { return HWY_DYNAMIC_DISPATCH(tile)(); }
void product(int64_t rows, int64_t k, const float* a, int64_t lda, const float* b, float* c, int64_t ldc, bool add) {
  HWY_DYNAMIC_DISPATCH(product_rows)(rows, k, a, lda, b, c, ldc, add);
}
void winograd_input(const float* const rows[4], int64_t c, float* out, int64_t plane) {
  HWY_DYNAMIC_DISPATCH(input)(rows, c, out, plane);
}
void winograd_input_doubled(const float* const rows[3], int64_t c, float* out, int64_t plane) {
  HWY_DYNAMIC_DISPATCH(input_doubled)(rows, c, out, plane);
}
void winograd_output(const float* m, int64_t plane, bool doubled, int64_t n, const Destination& to) {
  if (doubled)
    HWY_DYNAMIC_DISPATCH(output_doubled)(m, plane, n, to);
  else
    HWY_DYNAMIC_DISPATCH(output_plain)(m, plane, n, to);
}
void finish_pixel(const float* m, int64_t n, const float* bias, const float* residual, float* y) {
  HWY_DYNAMIC_DISPATCH(finish)(m, n, bias, residual, y);
}

void winograd_kernel(const float* g, bool doubled, float* out) {
  // Rows first, in f64, rounded once at the end. Doubled: the two middle pixels are one, its factor 2 stands here.
  const int side = doubled ? 3 : 4;
  double t[4][3];
  const auto combine = [doubled](double a, double b, double c, int row) {
    if (row == 0) return a;
    if (row == 1) return doubled ? a + b + c : 0.5 * (a + b + c);
    return row == 2 && !doubled ? 0.5 * (a - b + c) : c;
  };
  for (int u = 0; u < side; ++u)
    for (int x = 0; x < 3; ++x) t[u][x] = combine(g[x], g[3 + x], g[6 + x], u);
  for (int u = 0; u < side; ++u)
    for (int v = 0; v < side; ++v) out[u * side + v] = static_cast<float>(combine(t[u][0], t[u][1], t[u][2], v));
}

}  // namespace danqing::kernels
#endif
