// Sixteen values at a time, one vector (AVX-512) or two (AVX2), and how small integers become such values. Included
// once for each instruction set.
#include <array>
#include <cstdint>
#include <cstring>

#if defined(DANQING_KERNELS_BLOCKS_VECTOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DANQING_KERNELS_BLOCKS_VECTOR_INL_H_
#undef DANQING_KERNELS_BLOCKS_VECTOR_INL_H_
#else
#define DANQING_KERNELS_BLOCKS_VECTOR_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace danqing::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using DI = hn::RebindToSigned<DF>;
using V = hn::Vec<DF>;
using D8 = hn::FixedTag<uint8_t, 16>;
using DS8 = hn::FixedTag<int8_t, 16>;
using D16 = hn::FixedTag<uint16_t, 8>;
using U8 = hn::Vec<D8>;
using S8 = hn::Vec<DS8>;

constexpr int kParts = HWY_TARGET <= HWY_AVX3 ? 1 : 2;
constexpr int kLanes = 16 / kParts;

struct Sixteen {
  V part[kParts];
};

/// How a format makes a value of an integer q, in ggml's order of rounding.
enum class Form { product, minus, plus };  // q d, q d - m, q d + m

HWY_INLINE V broadcast(float x) { return hn::Set(DF(), x); }

/// An f16 in every lane.
HWY_INLINE V half(const uint8_t* p) {
  const hn::Rebind<uint16_t, DF> u16;
  uint16_t bits;
  std::memcpy(&bits, p, 2);
  return hn::PromoteTo(DF(), hn::BitCast(hn::Rebind<hwy::float16_t, DF>(), hn::Set(u16, bits)));
}

HWY_INLINE U8 load16(const uint8_t* p) { return hn::LoadU(D8(), p); }
HWY_INLINE S8 as_signed(U8 v) { return hn::BitCast(DS8(), v); }

/// Bits of each byte moved by kShift (to the right; to the left when negative), those in `mask` kept.
template <int kShift>
HWY_INLINE U8 bits(U8 v, uint8_t mask) {
  const D16 d16;
  const auto wide = hn::BitCast(d16, v);
  const auto keep = hn::Set(D8(), mask);
  if constexpr (kShift > 0)
    return hn::And(hn::BitCast(D8(), hn::ShiftRight<kShift>(wide)), keep);
  else if constexpr (kShift < 0)
    return hn::And(hn::BitCast(D8(), hn::ShiftLeft<-kShift>(wide)), keep);
  else
    return hn::And(v, keep);
}

/// 16 bytes, signed or not, as floats.
template <class Bytes>
HWY_INLINE Sixteen floats(Bytes v) {
  const DF d;
  const DI di;
#if HWY_TARGET <= HWY_AVX3
  return {{hn::ConvertTo(d, hn::PromoteTo(di, v))}};
#else
  const hn::DFromV<Bytes> db;
  return {{hn::ConvertTo(d, hn::PromoteTo(di, hn::LowerHalf(v))),
           hn::ConvertTo(d, hn::PromoteTo(di, hn::UpperHalf(hn::Half<decltype(db)>(), v)))}};
#endif
}

/// kExact: as ggml rounds; otherwise with one rounding.
template <Form kForm, bool kExact>
HWY_INLINE V apply(V q, V d, V m) {
  if constexpr (kForm == Form::product) return hn::Mul(q, d);
  if constexpr (kForm == Form::minus) return kExact ? hn::Sub(hn::Mul(q, d), m) : hn::MulSub(q, d, m);
  return kExact ? hn::Add(hn::Mul(q, d), m) : hn::MulAdd(q, d, m);
}
template <Form kForm, bool kExact>
HWY_INLINE Sixteen apply(Sixteen q, V d, V m) {
  DANQING_UNROLL
  for (int i = 0; i < kParts; ++i) q.part[i] = apply<kForm, kExact>(q.part[i], d, m);
  return q;
}

/// The values of the 16 integers that four bits stand for.
using Sixteen8 = std::array<int8_t, 16>;
constexpr Sixteen8 kFourBits = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
constexpr Sixteen8 kFourBitsCentred = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};
constexpr Sixteen8 kThreeBitsCentred = {-4, -3, -2, -1, 0, 1, 2, 3, -4, -3, -2, -1, 0, 1, 2, 3};
constexpr Sixteen8 kTwoBits = {0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3};
constexpr Sixteen8 kIq4 = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
constexpr Sixteen8 kFp4Doubled = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/// The 16 values that four bits can have under one scale: with AVX-512 a table of one register, so that a value costs
/// one permutation and the arithmetic is done once for a scale, not once for a value.
template <Form kForm, bool kExact>
struct Levels {
#if HWY_TARGET <= HWY_AVX3
  using Constants = V;
  static HWY_INLINE Constants constants(const Sixteen8& c) { return floats(hn::LoadU(DS8(), c.data())).part[0]; }
  HWY_INLINE Levels(Constants c, V d, V m) : table(apply<kForm, kExact>(c, d, m)) {}
  /// Of the four bits from kShift on of each byte.
  template <int kShift>
  HWY_INLINE Sixteen at(U8 bytes) const {
    const auto wide = hn::PromoteTo(DI(), bytes);
    // The permutation looks at the low four bits only.
    return {{V{_mm512_permutexvar_ps(hn::ShiftRight<kShift>(wide).raw, table.raw)}}};
  }
  V table;
#else
  using Constants = S8;
  static HWY_INLINE Constants constants(const Sixteen8& c) { return hn::LoadU(DS8(), c.data()); }
  HWY_INLINE Levels(Constants c, V d, V m) : table(c), scale(d), offset(m) {}
  template <int kShift>
  HWY_INLINE Sixteen at(U8 bytes) const {
    const auto q = hn::TableLookupBytes(table, as_signed(bits<kShift>(bytes, 15)));
    return apply<kForm, kExact>(floats(q), scale, offset);
  }
  Constants table;
  V scale, offset;
#endif
};

/// Sixteen floats that are broadcast one by one.
struct Scales {
  alignas(64) float value[16];
  HWY_INLINE V operator[](int i) const { return hn::Set(DF(), value[i]); }
};
template <class Bytes>
HWY_INLINE void store_scales(Bytes integers, V factor, Scales& to) {
  const Sixteen f = floats(integers);
  DANQING_UNROLL
  for (int i = 0; i < kParts; ++i) hn::Store(hn::Mul(factor, f.part[i]), DF(), to.value + i * kLanes);
}

}  // namespace danqing::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
