// The block formats of GGUF taken apart: each struct says how many values a block has, its bytes, and hands the values
// of a block to `out` in order, 16 at a time: out.put<slot>(first value, Sixteen). Two slots, so that sums of
// neighbours do not wait for each other. Out::kExact asks for ggml's rounding. Included once for each instruction set.
#include <bit>

#if defined(DANQING_KERNELS_BLOCKS_FORMATS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DANQING_KERNELS_BLOCKS_FORMATS_INL_H_
#undef DANQING_KERNELS_BLOCKS_FORMATS_INL_H_
#else
#define DANQING_KERNELS_BLOCKS_FORMATS_INL_H_
#endif

#include "device/kernels/blocks_vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace danqing::kernels::HWY_NAMESPACE {

template <class T>
HWY_INLINE T load_as(const uint8_t* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

// [d: f16][32 x i8]
struct Q8_0 {
  static constexpr int kValues = 32, kBytes = 34;
  template <class Out>
  static HWY_INLINE void unpack(const uint8_t* p, Out& out) {
    out.put32(0, floats(as_signed(load16(p + 2))), floats(as_signed(load16(p + 18))), half(p));
  }
};

/// 32 values of four bits: the low halves of 16 bytes, then the high ones.
template <Form kForm, class Out>
HWY_INLINE void nibbles(const Sixteen8& c, const uint8_t* p, V d, V m, int at, Out& out) {
  using L = Levels<kForm, Out::kExact>;
  const L levels(L::constants(c), d, m);
  const U8 bytes = load16(p);
  out.template put<0>(at, levels.template at<0>(bytes));
  out.template put<1>(at + 16, levels.template at<4>(bytes));
}

// [d: f16][16 bytes]
struct Q4_0 {
  static constexpr int kValues = 32, kBytes = 18;
  template <class Out>
  static HWY_INLINE void unpack(const uint8_t* p, Out& out) {
    const V d = half(p);
    nibbles<Form::product>(kFourBitsCentred, p + 2, d, d, 0, out);
  }
};
// [d: f16][m: f16][16 bytes]
struct Q4_1 {
  static constexpr int kValues = 32, kBytes = 20;
  template <class Out>
  static HWY_INLINE void unpack(const uint8_t* p, Out& out) {
    nibbles<Form::plus>(kFourBits, p + 4, half(p), half(p + 2), 0, out);
  }
};
// [d: f16][16 bytes], levels that are not evenly spaced
struct Iq4Nl {
  static constexpr int kValues = 32, kBytes = 18;
  template <class Out>
  static HWY_INLINE void unpack(const uint8_t* p, Out& out) {
    const V d = half(p);
    nibbles<Form::product>(kIq4, p + 2, d, d, 0, out);
  }
};
// [e: power of two][16 bytes of two FP4]
struct Mxfp4 {
  static constexpr int kValues = 32, kBytes = 17;
  template <class Out>
  static HWY_INLINE void unpack(const uint8_t* p, Out& out) {
    const uint32_t e = p[0];
    // 2^(e - 128): half the scale, as the levels are doubled; subnormal for e < 2.
    const V d = broadcast(std::bit_cast<float>(e < 2 ? 0x00200000u << e : (e - 1) << 23));
    nibbles<Form::product>(kFp4Doubled, p + 1, d, d, 0, out);
  }
};

/// Half of each value of an unsigned e4m3; 0x7f means 0.
constexpr std::array<float, 256> ue4m3_halves() {
  std::array<float, 256> t{};
  for (int i = 0; i < 256; ++i) {
    const int exponent = (i >> 3) & 15, mantissa = i & 7;
    float v = exponent == 0 ? static_cast<float>(mantissa) / 8 : 1 + static_cast<float>(mantissa) / 8;
    for (int e = exponent == 0 ? 1 : exponent; e < 8; ++e) v /= 2;
    for (int e = 8; e < exponent; ++e) v *= 2;
    t[static_cast<size_t>(i)] = i == 0x7f ? 0.0f : v;
  }
  return t;
}
// [4 x e4m3, one for 16 values][32 bytes of two FP4: 8 bytes hold 16 values, the low halves first]
struct Nvfp4 {
  static constexpr int kValues = 64, kBytes = 36;
  static constexpr std::array<float, 256> kScale = ue4m3_halves();
  template <class Out>
  static HWY_INLINE void unpack(const uint8_t* p, Out& out) {
    sub<0>(p, out), sub<1>(p, out), sub<2>(p, out), sub<3>(p, out);
  }
  template <int kSub, class Out>
  static HWY_INLINE void sub(const uint8_t* p, Out& out) {
    using L = Levels<Form::product, Out::kExact>;
    const hn::FixedTag<uint64_t, 2> d64;
    alignas(16) static constexpr uint64_t kShifts[2] = {0, 4};
    const auto twice = hn::Set(d64, load_as<uint64_t>(p + 4 + 8 * kSub));
    const V d = broadcast(kScale[p[kSub]]);
    const L levels(L::constants(kFp4Doubled), d, d);
    out.template put<kSub % 2>(16 * kSub,
                               levels.template at<0>(hn::BitCast(D8(), hn::Shr(twice, hn::Load(d64, kShifts)))));
  }
};

// [d: f16][32 high bits][16 bytes]
struct Q5_0 {
  static constexpr int kValues = 32, kBytes = 22;
  template <class Out>
  static HWY_INLINE void unpack(const uint8_t* p, Out& out) {
    const V d = half(p);
    const U8 bytes = load16(p + 6);
    out.put32(0, floats(five(bits<0>(bytes, 15), p + 2)), floats(five(bits<4>(bytes, 15), p + 4)), d);
  }
  /// q - 16: a fifth bit that is missing fills the upper half of the byte instead.
  static HWY_INLINE S8 five(U8 low, const uint8_t* high) {
    const auto set = hn::LoadMaskBits(D8(), high);
    return as_signed(hn::Or(low, hn::IfThenZeroElse(set, hn::Set(D8(), 0xf0))));
  }
};
// [d: f16][m: f16][32 high bits][16 bytes]
struct Q5_1 {
  static constexpr int kValues = 32, kBytes = 24;
  template <class Out>
  static HWY_INLINE void unpack(const uint8_t* p, Out& out) {
    const V d = half(p), m = half(p + 2);
    const U8 bytes = load16(p + 8);
    const Sixteen a = floats(five(bits<0>(bytes, 15), p + 4)), b = floats(five(bits<4>(bytes, 15), p + 6));
    out.template put<0>(0, apply<Form::plus, Out::kExact>(a, d, m));
    out.template put<1>(16, apply<Form::plus, Out::kExact>(b, d, m));
  }
  static HWY_INLINE U8 five(U8 low, const uint8_t* high) {
    return hn::Or(low, hn::IfThenElseZero(hn::LoadMaskBits(D8(), high), hn::Set(D8(), 16)));
  }
};

/// Eight scales and eight offsets of six bits in 12 bytes, times d and times m.
struct SixBits {
  Scales d, m;
  HWY_INLINE SixBits(const uint8_t* p, V scale, V offset) {
    const auto a = load_as<uint32_t>(p), b = load_as<uint32_t>(p + 4), c = load_as<uint32_t>(p + 8);
    const uint32_t scale_high = (c & 0x0f0f0f0f) | (a >> 6 & 0x03030303) << 4;
    const uint32_t offset_high = (c >> 4 & 0x0f0f0f0f) | (b >> 6 & 0x03030303) << 4;
    const hn::FixedTag<uint64_t, 2> d64;
    const auto word = [](uint32_t low, uint32_t high) { return static_cast<uint64_t>(high) << 32 | low; };
    store_scales(hn::BitCast(D8(), hn::Set(d64, word(a & 0x3f3f3f3f, scale_high))), scale, d);
    store_scales(hn::BitCast(D8(), hn::Set(d64, word(b & 0x3f3f3f3f, offset_high))), offset, m);
  }
};

// [d: f16][m: f16][8 scales and offsets][128 bytes]: 32 bytes hold 64 values, the low halves first
struct Q4_K {
  static constexpr int kValues = 256, kBytes = 144;
  template <class Out>
  static HWY_INLINE void unpack(const uint8_t* p, Out& out) {
    using L = Levels<Form::minus, Out::kExact>;
    const SixBits s(p + 4, half(p), half(p + 2));
    const auto c = L::constants(kFourBits);
    DANQING_UNROLL
    for (int g = 0; g < 4; ++g) {
      const U8 a = load16(p + 16 + 32 * g), b = load16(p + 32 + 32 * g);
      const L low(c, s.d[2 * g], s.m[2 * g]), high(c, s.d[2 * g + 1], s.m[2 * g + 1]);
      out.template put<0>(64 * g, low.template at<0>(a));
      out.template put<1>(64 * g + 16, low.template at<0>(b));
      out.template put<0>(64 * g + 32, high.template at<4>(a));
      out.template put<1>(64 * g + 48, high.template at<4>(b));
    }
  }
};

// As q4_K with 32 bytes of fifth bits before the 128 bytes: bit i of a byte for the i-th 32 values
struct Q5_K {
  static constexpr int kValues = 256, kBytes = 176;
  template <class Out>
  static HWY_INLINE void unpack(const uint8_t* p, Out& out) {
    const SixBits s(p + 4, half(p), half(p + 2));
    half32<0>(p, s, out), half32<1>(p, s, out), half32<2>(p, s, out), half32<3>(p, s, out);
    half32<4>(p, s, out), half32<5>(p, s, out), half32<6>(p, s, out), half32<7>(p, s, out);
  }
  template <int kPart, class Out>
  static HWY_INLINE void half32(const uint8_t* p, const SixBits& s, Out& out) {
    const V d = s.d[kPart], m = s.m[kPart];
    out.template put<0>(32 * kPart, apply<Form::minus, Out::kExact>(five<kPart>(p), d, m));
    out.template put<1>(32 * kPart + 16, apply<Form::minus, Out::kExact>(five<kPart>(p + 16), d, m));
  }
  template <int kPart>
  static HWY_INLINE Sixteen five(const uint8_t* p) {
    const U8 low = bits<kPart % 2 * 4>(load16(p + 48 + 32 * (kPart / 2)), 15);
    return floats(hn::Or(low, bits<kPart - 4>(load16(p + 16), 16)));
  }
};

// [128 bytes of low four bits][64 bytes of high two bits][16 x i8 scales][d: f16]
struct Q6_K {
  static constexpr int kValues = 256, kBytes = 210;
  template <class Out>
  static HWY_INLINE void unpack(const uint8_t* p, Out& out) {
    Scales s;
    store_scales(as_signed(load16(p + 192)), half(p + 208), s);
    part<0, 0>(p, s, out), part<0, 1>(p, s, out), part<0, 2>(p, s, out), part<0, 3>(p, s, out);
    part<1, 0>(p, s, out), part<1, 1>(p, s, out), part<1, 2>(p, s, out), part<1, 3>(p, s, out);
  }
  /// 32 of the 128 values of a half.
  template <int kHalf, int kPart, class Out>
  static HWY_INLINE void part(const uint8_t* p, const Scales& s, Out& out) {
    const uint8_t *low = p + 64 * kHalf + kPart % 2 * 32, *high = p + 128 + 32 * kHalf;
    constexpr int kAt = 128 * kHalf + 32 * kPart;
    const V d0 = s[kAt / 16], d1 = s[kAt / 16 + 1];
    out.template put<0>(kAt, apply<Form::product, true>(six<kPart>(low, high), d0, d0));
    out.template put<1>(kAt + 16, apply<Form::product, true>(six<kPart>(low + 16, high + 16), d1, d1));
  }
  template <int kPart>
  static HWY_INLINE Sixteen six(const uint8_t* low, const uint8_t* high) {
    const U8 q = hn::Or(bits<kPart / 2 * 4>(load16(low), 15), bits<2 * kPart - 4>(load16(high), 0x30));
    return floats(hn::Sub(as_signed(q), hn::Set(DS8(), 32)));
  }
};

// [32 bytes of third bits][64 bytes of low two bits][12 bytes: 16 scales of six bits][d: f16]
struct Q3_K {
  static constexpr int kValues = 256, kBytes = 110;
  template <class Out>
  static HWY_INLINE void unpack(const uint8_t* p, Out& out) {
    const auto a = load_as<uint32_t>(p + 96), b = load_as<uint32_t>(p + 100), c = load_as<uint32_t>(p + 104);
    constexpr uint32_t kLow = 0x0f0f0f0f, kTwo = 0x03030303;
    alignas(16)
        const uint32_t words[4] = {(a & kLow) | (c & kTwo) << 4, (b & kLow) | (c >> 2 & kTwo) << 4,
                                   (a >> 4 & kLow) | (c >> 4 & kTwo) << 4, (b >> 4 & kLow) | (c >> 6 & kTwo) << 4};
    const S8 six = hn::BitCast(DS8(), hn::Load(hn::FixedTag<uint32_t, 4>(), words));
    Scales s;
    store_scales(hn::Sub(six, hn::Set(DS8(), 32)), half(p + 108), s);
    part<0>(p, s, out), part<1>(p, s, out), part<2>(p, s, out), part<3>(p, s, out);
    part<4>(p, s, out), part<5>(p, s, out), part<6>(p, s, out), part<7>(p, s, out);
  }
  template <int kPart, class Out>
  static HWY_INLINE void part(const uint8_t* p, const Scales& s, Out& out) {
    using L = Levels<Form::product, Out::kExact>;
    const auto c = L::constants(kThreeBitsCentred);
    const V d0 = s[2 * kPart], d1 = s[2 * kPart + 1];
    out.template put<0>(32 * kPart, L(c, d0, d0).template at<0>(three<kPart>(p)));
    out.template put<1>(32 * kPart + 16, L(c, d1, d1).template at<0>(three<kPart>(p + 16)));
  }
  template <int kPart>
  static HWY_INLINE U8 three(const uint8_t* p) {
    const U8 low = bits<kPart % 4 * 2>(load16(p + 32 + 32 * (kPart / 4)), 3);
    return hn::Or(low, bits<kPart - 2>(load16(p), 4));
  }
};

// [16 bytes: scale in the low half, offset in the high one][64 bytes of two bits][d: f16][m: f16]
struct Q2_K {
  static constexpr int kValues = 256, kBytes = 84;
  template <class Out>
  static HWY_INLINE void unpack(const uint8_t* p, Out& out) {
    Scales s, m;
    store_scales(bits<0>(load16(p), 15), half(p + 80), s);
    store_scales(bits<4>(load16(p), 15), half(p + 82), m);
    DANQING_UNROLL
    for (int h = 0; h < 2; ++h) {
      const U8 a = load16(p + 16 + 32 * h), b = load16(p + 32 + 32 * h);
      part<0>(a, b, s, m, h, out), part<1>(a, b, s, m, h, out), part<2>(a, b, s, m, h, out),
          part<3>(a, b, s, m, h, out);
    }
  }
  template <int kPart, class Out>
  static HWY_INLINE void part(U8 a, U8 b, const Scales& s, const Scales& m, int h, Out& out) {
    using L = Levels<Form::minus, Out::kExact>;
    const auto c = L::constants(kTwoBits);
    const int i = 8 * h + 2 * kPart;
    out.template put<0>(16 * i, L(c, s[i], m[i]).template at<2 * kPart>(a));
    out.template put<1>(16 * i + 16, L(c, s[i + 1], m[i + 1]).template at<2 * kPart>(b));
  }
};

// [d: f16][8 x high two bits of a scale][8 x low four bits][128 bytes]: 16 bytes hold 32 values
struct Iq4Xs {
  static constexpr int kValues = 256, kBytes = 136;
  template <class Out>
  static HWY_INLINE void unpack(const uint8_t* p, Out& out) {
    uint64_t high = load_as<uint16_t>(p + 2), low = load_as<uint32_t>(p + 4);  // one field to each byte
    high = (high | high << 24) & 0x000000ff000000ff, high = (high | high << 12) & 0x000f000f000f000f;
    high = (high | high << 6) & 0x0303030303030303;
    low = (low | low << 16) & 0x0000ffff0000ffff, low = (low | low << 8) & 0x00ff00ff00ff00ff;
    low = (low | low << 4) & 0x0f0f0f0f0f0f0f0f;
    const S8 six = hn::BitCast(DS8(), hn::Set(hn::FixedTag<uint64_t, 2>(), low | high << 4));
    Scales s;
    store_scales(hn::Sub(six, hn::Set(DS8(), 32)), half(p), s);
    DANQING_UNROLL
    for (int i = 0; i < 8; ++i) nibbles<Form::product>(kIq4, p + 8 + 16 * i, s[i], s[i], 32 * i, out);
  }
};

}  // namespace danqing::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
