#include "device/kernels/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/kernels/rows.cpp"
#include "device/kernels/targets.h"  // before highway.h
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include <hwy/cache_control.h>
// clang-format on

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "device/kernels/blocks.h"
#include "device/kernels/micro.h"

HWY_BEFORE_NAMESPACE();
namespace danqing::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using DF = hn::ScalableTag<float>;
using DI = hn::RebindToSigned<DF>;
using DU = hn::RebindToUnsigned<DF>;
using V = hn::Vec<DF>;

// Loaders: `N` values from value index i of a stored row.
struct F32Row {
  const float* p;
  V load(size_t i) const { return hn::LoadU(DF(), p + i); }
};
struct Bf16Row {
  const uint16_t* p;
  V load(size_t i) const {
    const hn::Rebind<uint16_t, DF> d16;
    return hn::BitCast(DF(), hn::ShiftLeft<16>(hn::PromoteTo(DU(), hn::LoadU(d16, p + i))));
  }
};
struct F16Row {
  const uint16_t* p;
  V load(size_t i) const {
    const hn::Rebind<hwy::float16_t, DF> d16;
    const hn::Rebind<uint16_t, DF> u16;
    return hn::PromoteTo(DF(), hn::BitCast(d16, hn::LoadU(u16, p + i)));
  }
};

struct I8Row {
  const int8_t* p;
  V load(size_t i) const {
    const hn::Rebind<int8_t, DF> d8;
    return hn::ConvertTo(DF(), hn::PromoteTo(DI(), hn::LoadU(d8, p + i)));
  }
};

/// FP8 by way of f16, which has both of its exponent ranges, subnormal numbers included, and widens them at full speed.
struct F8E5M2Row {
  const uint8_t* p;
  V load(size_t i) const {
    const hn::Rebind<hwy::float16_t, DF> d16;
    const hn::Rebind<uint16_t, DF> u16;
    const hn::Rebind<uint8_t, DF> u8;
    return hn::PromoteTo(DF(), hn::BitCast(d16, hn::ShiftLeft<8>(hn::PromoteTo(u16, hn::LoadU(u8, p + i)))));
  }
};
struct F8E4M3Row {
  const uint8_t* p;
  V load(size_t i) const {
    const hn::Rebind<hwy::float16_t, DF> d16;
    const hn::Rebind<int16_t, DF> i16;
    const hn::Rebind<int8_t, DF> i8;
    const auto byte = hn::LoadU(i8, reinterpret_cast<const int8_t*>(p) + i);
    // The sign is extended to bits 14 and 15, only 15 stays: the value times 2^-8, as exponents count from 15, not 7.
    const auto bits = hn::And(hn::ShiftLeft<7>(hn::PromoteTo(i16, byte)), hn::Set(i16, static_cast<int16_t>(0xbfff)));
    const auto nan = hn::Eq(hn::And(bits, hn::Set(i16, 0x3fff)), hn::Set(i16, 0x3f80));
    const auto f16 = hn::BitCast(d16, hn::IfThenElse(nan, hn::Set(i16, 0x7e00), bits));
    return hn::Mul(hn::PromoteTo(DF(), f16), hn::Set(DF(), 256.0f));
  }
};

template <class Row>
void widen(Row row, size_t n, float* HWY_RESTRICT out) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(row.load(i), d, out + i);
  if (i == n) return;
  alignas(64) uint8_t padded[64 * sizeof(float)] = {};
  std::memcpy(padded, row.p + i, (n - i) * sizeof(*row.p));
  row.p = reinterpret_cast<decltype(row.p)>(padded);
  alignas(64) float tail[64];
  hn::Store(row.load(0), d, tail);
  std::copy_n(tail, n - i, out + i);
}

void widen_bf16(const void* p, size_t n, float* out) { widen(Bf16Row{static_cast<const uint16_t*>(p)}, n, out); }
void widen_f16(const void* p, size_t n, float* out) { widen(F16Row{static_cast<const uint16_t*>(p)}, n, out); }
void widen_i8(const void* p, size_t n, float* out) { widen(I8Row{static_cast<const int8_t*>(p)}, n, out); }
void widen_e4m3(const void* p, size_t n, float* out) { widen(F8E4M3Row{static_cast<const uint8_t*>(p)}, n, out); }
void widen_e5m2(const void* p, size_t n, float* out) { widen(F8E5M2Row{static_cast<const uint8_t*>(p)}, n, out); }

/// 4 x 4 units are turned over in registers.
void interleave(const void* const* rows, int count, int64_t k, int64_t group, int64_t first, void* out) {
  auto* to = static_cast<uint32_t*>(out) + first;
  int64_t j = 0;
#if HWY_TARGET != HWY_SCALAR
  if (count == 4) {
    const auto row = [&](int r) { return static_cast<const uint32_t*>(rows[r]); };
    const uint32_t *r0 = row(0), *r1 = row(1), *r2 = row(2), *r3 = row(3);
    const hn::FixedTag<uint32_t, 4> d;
    const hn::RepartitionToWide<decltype(d)> w;
    for (; j + 4 <= k; j += 4) {
      const auto a = hn::LoadU(d, r0 + j), b = hn::LoadU(d, r1 + j);
      const auto c = hn::LoadU(d, r2 + j), e = hn::LoadU(d, r3 + j);
      const auto ab0 = hn::BitCast(w, hn::InterleaveLower(d, a, b)), ab1 = hn::BitCast(w, hn::InterleaveUpper(d, a, b));
      const auto ce0 = hn::BitCast(w, hn::InterleaveLower(d, c, e)), ce1 = hn::BitCast(w, hn::InterleaveUpper(d, c, e));
      uint32_t* p = to + j * group;
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(w, ab0, ce0)), d, p);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(w, ab0, ce0)), d, p + group);
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(w, ab1, ce1)), d, p + 2 * group);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(w, ab1, ce1)), d, p + 3 * group);
    }
  }
#endif
  const int64_t width = std::min<int64_t>(4, group - first);
  for (; j < k; ++j)
    for (int r = 0; r < width; ++r) {
      uint32_t unit = 0;
      if (r < count) std::memcpy(&unit, static_cast<const std::byte*>(rows[r]) + j * 4, 4);
      to[j * group + r] = unit;
    }
}

float absmax(const float* x, int64_t k) {
  const DF d;
  const size_t lanes = hn::Lanes(d), n = static_cast<size_t>(k);
  V max = hn::Zero(d), poison = hn::Zero(d);  // x * 0 is NaN exactly where x is not finite
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const V v = hn::LoadU(d, x + i);
    max = hn::Max(max, hn::Abs(v));
    poison = hn::MulAdd(v, hn::Zero(d), poison);
  }
  float m = hn::GetLane(hn::MaxOfLanes(d, max)), p = hn::GetLane(hn::SumOfLanes(d, poison));
  for (; i < n; ++i) m = std::max(m, std::abs(x[i])), p += x[i] * 0.0f;
  return p == 0.0f ? m : std::numeric_limits<float>::quiet_NaN();
}

#if HWY_TARGET != HWY_SCALAR
/// v * factor rounded to the nearest integer, for results below 2^22: the last bits of the sum with 1.5 * 2^23. NaN
/// gives any integer.
HWY_INLINE hn::Vec<DI> nearest(V v, V factor) {
  constexpr float kMagic = 12582912.0f;
  const DF d;
  const DI di;
  const auto sum = hn::MulAdd(v, factor, hn::Set(d, kMagic));
  return hn::Sub(hn::BitCast(di, sum), hn::BitCast(di, hn::Set(d, kMagic)));
}

/// One block of n <= 128 values.
void block_i16(const float* x, size_t n, float inverse, int16_t* q) {
  const DF d;
  const hn::Rebind<int16_t, DF> d16;
  const DI di;
  const size_t lanes = hn::Lanes(d);
  const auto top = hn::Set(di, kMaxI16), bottom = hn::Set(di, -kMaxI16);
  const V factor = hn::Set(d, inverse);
  const auto one = [&](V v) { return hn::DemoteTo(d16, hn::Min(hn::Max(nearest(v, factor), bottom), top)); };
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(one(hn::LoadU(d, x + i)), d16, q + i);
  if (i < n) {
    alignas(64) float tail[64] = {};
    alignas(64) int16_t narrow[64];
    std::copy_n(x + i, n - i, tail);
    hn::Store(one(hn::Load(d, tail)), d16, narrow);
    std::copy_n(narrow, n - i, q + i);
  }
}
#else
void block_i16(const float* x, size_t n, float inverse, int16_t* q) {
  for (size_t i = 0; i < n; ++i)
    q[i] = static_cast<int16_t>(std::clamp(static_cast<int>(std::lrint(x[i] * inverse)), -kMaxI16, kMaxI16));
}
#endif

/// The scale 2^(e - 11) for a largest magnitude m in [2^e, 2^(e+1)), which becomes at most 4095. m is normal.
float power_scale(uint32_t m_bits) {
  const uint32_t bits = ((m_bits >> 23) - 11) << 23;
  float scale;
  std::memcpy(&scale, &bits, sizeof scale);
  return scale;
}

void quantize_i16(const float* x, int64_t k, bool power_of_two, int16_t* q, float* scales) {
  for (int64_t i = 0; i < k; i += kBlockK, x += kBlockK, q += kBlockK, ++scales) {
    const int64_t n = std::min(kBlockK, k - i);
    const float m = absmax(x, n);
    if (n < kBlockK) std::fill(q + n, q + kBlockK, int16_t{0});
    if (!(m >= std::numeric_limits<float>::min() * 8192)) {  // zeros, values too small to matter, or not finite
      *scales = m == m ? 0.0f : m;
      std::fill(q, q + n, int16_t{0});
      continue;
    }
    float scale = m / static_cast<float>(kMaxI16);
    if (power_of_two) {
      uint32_t bits;
      std::memcpy(&bits, &m, sizeof bits);
      scale = power_scale(bits);
    }
    *scales = scale;
    block_i16(x, static_cast<size_t>(n), 1.0f / scale, q);
  }
}

#if HWY_TARGET != HWY_SCALAR
void quantize_bf16(const uint16_t* x, int64_t k, int16_t* q, float* scales) {
  const DF d;
  const hn::Rebind<int16_t, DF> d16;
  const hn::Repartition<uint16_t, DF> u16;
  const size_t lanes = hn::Lanes(d), lanes16 = hn::Lanes(u16);
  constexpr auto kBlock = static_cast<size_t>(kBlockK);
  for (; k > 0; k -= kBlockK, x += kBlock, q += kBlock, ++scales) {
    alignas(64) uint16_t padded[kBlock];
    if (k < kBlockK) {
      std::copy_n(x, k, padded);
      std::fill(padded + k, padded + kBlock, uint16_t{0});
      x = padded;
    }
    const auto magnitude = hn::Set(u16, 0x7fff);
    auto most = hn::Zero(u16);
    for (size_t i = 0; i < kBlock; i += lanes16) most = hn::Max(most, hn::And(hn::LoadU(u16, x + i), magnitude));
    const uint32_t m = hn::GetLane(hn::MaxOfLanes(u16, most));
    if (m < (14u << 7) || m >= 0x7f80) {  // zeros, values too small to matter, or not finite
      *scales = m < (14u << 7) ? 0.0f : std::numeric_limits<float>::quiet_NaN();
      std::fill(q, q + kBlock, int16_t{0});
      continue;
    }
    *scales = power_scale(m << 16);
    const V factor = hn::Set(d, 1.0f / *scales);
    for (size_t i = 0; i < kBlock; i += lanes)
      hn::StoreU(hn::DemoteTo(d16, nearest(Bf16Row{x}.load(i), factor)), d16, q + i);
  }
}
#else
void quantize_bf16(const uint16_t* x, int64_t k, int16_t* q, float* scales) {
  float wide[kBlockK];
  for (; k > 0; k -= kBlockK, x += kBlockK, q += kBlockK, ++scales) {
    const int64_t n = std::min(kBlockK, k);
    widen_bf16(x, static_cast<size_t>(n), wide);
    quantize_i16(wide, n, true, q, scales);
  }
}
#endif

int32_t quantize_i8(const float* x, int64_t k, float scale, int zero, uint8_t* q) {
  const float inverse = scale > 0 ? 1.0f / scale : 0.0f;
  int64_t i = 0;
  int32_t sum = 0;
#if HWY_TARGET != HWY_SCALAR
  const DF d;
  const DI di;
  const hn::Rebind<int8_t, DF> d8;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto top = hn::Set(di, 127), bottom = hn::Set(di, -127);
  const V factor = hn::Set(d, inverse);
  const auto flip = hn::Set(d8, static_cast<int8_t>(zero));  // adding 128 modulo 256 changes the top bit only
  auto sums = hn::Zero(di);
  for (; i + lanes <= k; i += lanes) {
    const auto r = hn::Min(hn::Max(nearest(hn::LoadU(d, x + i), factor), bottom), top);
    sums = hn::Add(sums, r);
    hn::StoreU(hn::Add(hn::DemoteTo(d8, r), flip), d8, reinterpret_cast<int8_t*>(q) + i);
  }
  sum = hn::GetLane(hn::SumOfLanes(di, sums));
#endif
  for (; i < k; ++i) {
    const int r = std::clamp(static_cast<int>(std::nearbyint(x[i] * inverse)), -127, 127);
    sum += r;
    q[i] = static_cast<uint8_t>(r + zero);
  }
  return sum;
}

void scale_i8(const int32_t* sums, int64_t n, float a_scale, const float* b_scale, const int32_t* b_sums,
              float* HWY_RESTRICT y) {
  const DF d;
  const DI di;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto zero = hn::Set(di, kZeroI8);
  const V a = hn::Set(d, a_scale);
  int64_t j = 0;
  for (; j + lanes <= n; j += lanes) {
    const auto sum = hn::Sub(hn::LoadU(di, sums + j), hn::Mul(zero, hn::LoadU(di, b_sums + j)));
    hn::StoreU(hn::Mul(hn::ConvertTo(d, sum), hn::Mul(a, hn::LoadU(d, b_scale + j))), d, y + j);
  }
  for (; j < n; ++j) y[j] = static_cast<float>(sums[j] - kZeroI8 * b_sums[j]) * (a_scale * b_scale[j]);
}

/// Bytes that a row of weights is fetched ahead: the hardware stops at the end of each page, rows go on.
constexpr size_t kAhead = 4096, kAheadOfFour = 2048;

/// Four sums a row of x, so that the additions do not wait for each other.
template <int kRows, class Row>
void dot_rows(Row w, const float* HWY_RESTRICT x, int64_t ldx, int64_t k, float* HWY_RESTRICT y) {
  const DF d;
  const size_t lanes = hn::Lanes(d), n = static_cast<size_t>(k);
  constexpr int kSums = 4;
  V sum[kRows][kSums];
  DANQING_UNROLL
  for (int r = 0; r < kRows; ++r) {
    DANQING_UNROLL
    for (int s = 0; s < kSums; ++s) sum[r][s] = hn::Zero(d);
  }
  size_t i = 0;
  for (; i + kSums * lanes <= n; i += kSums * lanes) {
    for (size_t line = 0; line < kSums * lanes * sizeof(*w.p); line += 64)
      hwy::Prefetch(reinterpret_cast<const std::byte*>(w.p + i) + kAhead + line);
    DANQING_UNROLL
    for (int s = 0; s < kSums; ++s) {
      const V v = w.load(i + static_cast<size_t>(s) * lanes);
      DANQING_UNROLL
      for (int r = 0; r < kRows; ++r)
        sum[r][s] = hn::MulAdd(v, hn::LoadU(d, x + r * ldx + i + static_cast<size_t>(s) * lanes), sum[r][s]);
    }
  }
  for (; i + lanes <= n; i += lanes) {
    const V v = w.load(i);
    for (int r = 0; r < kRows; ++r) sum[r][0] = hn::MulAdd(v, hn::LoadU(d, x + r * ldx + i), sum[r][0]);
  }
  alignas(64) float rest[64] = {};
  if (i < n) {
    w.p += i;
    widen(w, n - i, rest);
  }
  for (int r = 0; r < kRows; ++r) {
    float total = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sum[r][0], sum[r][1]), hn::Add(sum[r][2], sum[r][3]))));
    for (size_t j = i; j < n; ++j) total += rest[j - i] * x[r * ldx + static_cast<int64_t>(j)];
    y[r] = total;
  }
}

/// Four rows of weights with one row of x, which is read once for all of them.
template <class Row>
void dot_columns(const void* first, size_t row_bytes, const float* HWY_RESTRICT x, int64_t k, float* HWY_RESTRICT y) {
  const DF d;
  const size_t lanes = hn::Lanes(d), n = static_cast<size_t>(k);
  using T = std::remove_reference_t<decltype(*Row{}.p)>;
  const auto row = [&](size_t c) {
    return Row{reinterpret_cast<T*>(static_cast<const std::byte*>(first) + c * row_bytes)};
  };
  const Row w0 = row(0), w1 = row(1), w2 = row(2), w3 = row(3);
  V a0 = hn::Zero(d), a1 = a0, a2 = a0, a3 = a0, b0 = a0, b1 = a0, b2 = a0, b3 = a0;
  size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    for (const Row& w : {w0, w1, w2, w3}) hwy::Prefetch(reinterpret_cast<const std::byte*>(w.p + i) + kAheadOfFour);
    const V x0 = hn::LoadU(d, x + i), x1 = hn::LoadU(d, x + i + lanes);
    a0 = hn::MulAdd(w0.load(i), x0, a0), b0 = hn::MulAdd(w0.load(i + lanes), x1, b0);
    a1 = hn::MulAdd(w1.load(i), x0, a1), b1 = hn::MulAdd(w1.load(i + lanes), x1, b1);
    a2 = hn::MulAdd(w2.load(i), x0, a2), b2 = hn::MulAdd(w2.load(i + lanes), x1, b2);
    a3 = hn::MulAdd(w3.load(i), x0, a3), b3 = hn::MulAdd(w3.load(i + lanes), x1, b3);
  }
  y[0] = hn::GetLane(hn::SumOfLanes(d, hn::Add(a0, b0)));
  y[1] = hn::GetLane(hn::SumOfLanes(d, hn::Add(a1, b1)));
  y[2] = hn::GetLane(hn::SumOfLanes(d, hn::Add(a2, b2)));
  y[3] = hn::GetLane(hn::SumOfLanes(d, hn::Add(a3, b3)));
  if (i == n) return;
  alignas(64) float rest[128];
  for (size_t c = 0; c < 4; ++c) {
    Row w = row(c);
    w.p += i;
    widen(w, n - i, rest);
    for (size_t j = i; j < n; ++j) y[c] += rest[j - i] * x[j];
  }
}

void columns_f32(const void* w, size_t row_bytes, const float* x, int64_t k, float* y) {
  dot_columns<F32Row>(w, row_bytes, x, k, y);
}
void columns_bf16(const void* w, size_t row_bytes, const float* x, int64_t k, float* y) {
  dot_columns<Bf16Row>(w, row_bytes, x, k, y);
}
void columns_f16(const void* w, size_t row_bytes, const float* x, int64_t k, float* y) {
  dot_columns<F16Row>(w, row_bytes, x, k, y);
}
void columns_i8(const void* w, size_t row_bytes, const float* x, int64_t k, float* y) {
  dot_columns<I8Row>(w, row_bytes, x, k, y);
}
void columns_e4m3(const void* w, size_t row_bytes, const float* x, int64_t k, float* y) {
  dot_columns<F8E4M3Row>(w, row_bytes, x, k, y);
}
void columns_e5m2(const void* w, size_t row_bytes, const float* x, int64_t k, float* y) {
  dot_columns<F8E5M2Row>(w, row_bytes, x, k, y);
}

template <class Row>
void dot_any(Row w, const float* x, int64_t ldx, int rows, int64_t k, float* y) {
  switch (rows) {
    case 1: return dot_rows<1>(w, x, ldx, k, y);
    case 2: return dot_rows<2>(w, x, ldx, k, y);
    case 3: return dot_rows<3>(w, x, ldx, k, y);
    default: return dot_rows<4>(w, x, ldx, k, y);
  }
}

void dot_f32(const void* w, const float* x, int64_t ldx, int rows, int64_t k, float* y) {
  dot_any(F32Row{static_cast<const float*>(w)}, x, ldx, rows, k, y);
}
void dot_bf16(const void* w, const float* x, int64_t ldx, int rows, int64_t k, float* y) {
  dot_any(Bf16Row{static_cast<const uint16_t*>(w)}, x, ldx, rows, k, y);
}
void dot_f16(const void* w, const float* x, int64_t ldx, int rows, int64_t k, float* y) {
  dot_any(F16Row{static_cast<const uint16_t*>(w)}, x, ldx, rows, k, y);
}
void dot_i8(const void* w, const float* x, int64_t ldx, int rows, int64_t k, float* y) {
  dot_any(I8Row{static_cast<const int8_t*>(w)}, x, ldx, rows, k, y);
}
void dot_e4m3(const void* w, const float* x, int64_t ldx, int rows, int64_t k, float* y) {
  dot_any(F8E4M3Row{static_cast<const uint8_t*>(w)}, x, ldx, rows, k, y);
}
void dot_e5m2(const void* w, const float* x, int64_t ldx, int rows, int64_t k, float* y) {
  dot_any(F8E5M2Row{static_cast<const uint8_t*>(w)}, x, ldx, rows, k, y);
}

}  // namespace danqing::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <ggml.h>

#include "base/float_bits.h"

namespace danqing::kernels {
namespace {
HWY_EXPORT(widen_bf16);
HWY_EXPORT(widen_f16);
HWY_EXPORT(widen_i8);
HWY_EXPORT(widen_e4m3);
HWY_EXPORT(widen_e5m2);
HWY_EXPORT(interleave);
HWY_EXPORT(quantize_i16);
HWY_EXPORT(quantize_bf16);
HWY_EXPORT(quantize_i8);
HWY_EXPORT(scale_i8);
HWY_EXPORT(absmax);
HWY_EXPORT(dot_f32);
HWY_EXPORT(dot_bf16);
HWY_EXPORT(dot_f16);
HWY_EXPORT(dot_i8);
HWY_EXPORT(dot_e4m3);
HWY_EXPORT(dot_e5m2);
HWY_EXPORT(columns_f32);
HWY_EXPORT(columns_bf16);
HWY_EXPORT(columns_f16);
HWY_EXPORT(columns_i8);
HWY_EXPORT(columns_e4m3);
HWY_EXPORT(columns_e5m2);

const ggml_type_traits* block_traits(DType type) {
  if (!is_quantized(type) || traits(type).ggml_type < 0) return nullptr;
  const ggml_type_traits* t = ggml_get_type_traits(static_cast<ggml_type>(traits(type).ggml_type));
  return t && t->to_float ? t : nullptr;
}

}  // namespace

bool expands(DType type) { return dots_columns(type) || block_traits(type); }

void expand(DType type, const std::byte* src, int64_t n, float* out) {
  const auto count = static_cast<size_t>(n);
  switch (type) {
    case DType::f32: std::memcpy(out, src, count * sizeof(float)); return;
    case DType::bf16: HWY_DYNAMIC_DISPATCH(widen_bf16)(src, count, out); return;
    case DType::f16: HWY_DYNAMIC_DISPATCH(widen_f16)(src, count, out); return;
    case DType::i8: HWY_DYNAMIC_DISPATCH(widen_i8)(src, count, out); return;
    case DType::f8_e4m3: HWY_DYNAMIC_DISPATCH(widen_e4m3)(src, count, out); return;
    case DType::f8_e5m2: HWY_DYNAMIC_DISPATCH(widen_e5m2)(src, count, out); return;
    default: break;
  }
  if (const auto decode = block_kernels(type).expand)
    decode(reinterpret_cast<const uint8_t*>(src), n / traits(type).block_elements, out);
  else
    block_traits(type)->to_float(src, out, n);
}

void interleave(const void* const* rows, int count, int64_t k, int64_t group, int64_t first, void* out) {
  HWY_DYNAMIC_DISPATCH(interleave)(rows, count, k, group, first, out);
}
void quantize_i16(const float* x, int64_t k, bool power_of_two, int16_t* q, float* scales) {
  HWY_DYNAMIC_DISPATCH(quantize_i16)(x, k, power_of_two, q, scales);
}
void quantize_bf16(const uint16_t* x, int64_t k, int16_t* q, float* scales) {
  HWY_DYNAMIC_DISPATCH(quantize_bf16)(x, k, q, scales);
}
int32_t quantize_i8(const float* x, int64_t k, float scale, int zero, uint8_t* q) {
  return HWY_DYNAMIC_DISPATCH(quantize_i8)(x, k, scale, zero, q);
}
void scale_i8(const int32_t* sums, int64_t n, float a_scale, const float* b_scale, const int32_t* b_sums, float* y) {
  HWY_DYNAMIC_DISPATCH(scale_i8)(sums, n, a_scale, b_scale, b_sums, y);
}
float absmax(const float* x, int64_t k) { return HWY_DYNAMIC_DISPATCH(absmax)(x, k); }

bool dots_columns(DType type) {
  return type == DType::f32 || type == DType::bf16 || type == DType::f16 || type == DType::i8 ||
         type == DType::f8_e4m3 || type == DType::f8_e5m2;
}

void dot_columns(DType type, const std::byte* w, size_t row_bytes, const float* x, int64_t k, float* y) {
  switch (type) {
    case DType::f32: return HWY_DYNAMIC_DISPATCH(columns_f32)(w, row_bytes, x, k, y);
    case DType::bf16: return HWY_DYNAMIC_DISPATCH(columns_bf16)(w, row_bytes, x, k, y);
    case DType::i8: return HWY_DYNAMIC_DISPATCH(columns_i8)(w, row_bytes, x, k, y);
    case DType::f8_e4m3: return HWY_DYNAMIC_DISPATCH(columns_e4m3)(w, row_bytes, x, k, y);
    case DType::f8_e5m2: return HWY_DYNAMIC_DISPATCH(columns_e5m2)(w, row_bytes, x, k, y);
    default: return HWY_DYNAMIC_DISPATCH(columns_f16)(w, row_bytes, x, k, y);
  }
}

void dot(DType type, const std::byte* w, const float* x, int64_t ldx, int rows, int64_t k, float* y) {
  switch (type) {
    case DType::f32: HWY_DYNAMIC_DISPATCH(dot_f32)(w, x, ldx, rows, k, y); return;
    case DType::bf16: HWY_DYNAMIC_DISPATCH(dot_bf16)(w, x, ldx, rows, k, y); return;
    case DType::f16: HWY_DYNAMIC_DISPATCH(dot_f16)(w, x, ldx, rows, k, y); return;
    case DType::i8: HWY_DYNAMIC_DISPATCH(dot_i8)(w, x, ldx, rows, k, y); return;
    case DType::f8_e4m3: HWY_DYNAMIC_DISPATCH(dot_e4m3)(w, x, ldx, rows, k, y); return;
    case DType::f8_e5m2: HWY_DYNAMIC_DISPATCH(dot_e5m2)(w, x, ldx, rows, k, y); return;
    default: break;
  }
  const int64_t block = traits(type).block_elements, bytes = traits(type).block_bytes;
  if (const auto multiply = block_kernels(type).dot)
    return multiply(reinterpret_cast<const uint8_t*>(w), k / block, x, ldx, rows, y);
  constexpr int64_t kPiece = 1024;  // whole blocks of every type
  alignas(64) float piece[kPiece];
  std::fill_n(y, rows, 0.0f);
  float part[4];
  for (int64_t i = 0; i < k; i += kPiece) {
    const int64_t n = std::min(kPiece, k - i);
    expand(type, w + i / block * bytes, n, piece);
    HWY_DYNAMIC_DISPATCH(dot_f32)(piece, x + i, ldx, rows, n, part);
    for (int r = 0; r < rows; ++r) y[r] += part[r];
  }
}

}  // namespace danqing::kernels
#endif
