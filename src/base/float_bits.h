// Conversions between f32 and the narrow floating point formats, by bits. Rounding is to nearest, ties to even.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace danqing {

inline float bf16_to_f32(uint16_t b) { return std::bit_cast<float>(static_cast<uint32_t>(b) << 16); }

inline uint16_t f32_to_bf16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((u >> 16) | 0x40u);  // stay a NaN
  return static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

inline float f16_to_f32(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t exp = (h >> 10) & 31u, mant = h & 0x3ffu;
  if (exp == 31) return std::bit_cast<float>(sign | 0x7f800000u | (mant << 13));
  if (exp == 0) return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(std::ldexp(static_cast<float>(mant), -24)));
  return std::bit_cast<float>(sign | ((exp + 112u) << 23) | (mant << 13));
}

inline uint16_t f32_to_f16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const uint16_t sign = static_cast<uint16_t>((u >> 16) & 0x8000u);
  const uint32_t a = u & 0x7fffffffu;
  if (a > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (a >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // rounds to 65536 or more
  if (a < 0x38800000u) {  // subnormal result: units of 2^-24, nearbyint rounds ties to even
    return static_cast<uint16_t>(sign | static_cast<uint16_t>(std::nearbyint(std::ldexp(std::bit_cast<float>(a), 24))));
  }
  return static_cast<uint16_t>(sign | ((a - 0x38000000u + 0xfffu + ((a >> 13) & 1u)) >> 13));
}

/// OCP FP8: E4M3 "fn" (no infinities, 0x7f is NaN) and E5M2 (IEEE-like).
inline float f8_e4m3_to_f32(uint8_t b) {
  const float s = (b & 0x80) ? -1.0f : 1.0f;
  const int exp = (b >> 3) & 15, mant = b & 7;
  if (exp == 15 && mant == 7) return std::numeric_limits<float>::quiet_NaN();
  return s * (exp == 0 ? std::ldexp(static_cast<float>(mant), -9) : std::ldexp(static_cast<float>(8 + mant), exp - 10));
}
inline float f8_e5m2_to_f32(uint8_t b) { return f16_to_f32(static_cast<uint16_t>(b << 8)); }

/// Finite values beyond the largest become the largest (448), as quantisers expect; infinities become NaN.
inline uint8_t f32_to_f8_e4m3(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x), a = u & 0x7fffffffu;
  const auto sign = static_cast<uint8_t>((u >> 24) & 0x80u);
  if (a >= 0x7f800000u) return static_cast<uint8_t>(sign | 0x7fu);
  if (a >= 0x43e00000u) return static_cast<uint8_t>(sign | 0x7eu);  // 448 and more
  if (a < 0x3c800000u)                                              // below 2^-6: units of 2^-9
    return static_cast<uint8_t>(sign | static_cast<uint8_t>(std::nearbyint(std::ldexp(std::bit_cast<float>(a), 9))));
  return static_cast<uint8_t>(sign | ((a - 0x3c000000u + 0x7ffffu + ((a >> 20) & 1u)) >> 20));
}
/// The largest is 57344; infinities stay.
inline uint8_t f32_to_f8_e5m2(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x), a = u & 0x7fffffffu;
  const auto sign = static_cast<uint8_t>((u >> 24) & 0x80u);
  if (a > 0x7f800000u) return static_cast<uint8_t>(sign | 0x7eu);
  if (a == 0x7f800000u) return static_cast<uint8_t>(sign | 0x7cu);
  if (a >= 0x47600000u) return static_cast<uint8_t>(sign | 0x7bu);  // 57344 and more
  if (a < 0x38800000u)                                              // below 2^-14: units of 2^-16
    return static_cast<uint8_t>(sign | static_cast<uint8_t>(std::nearbyint(std::ldexp(std::bit_cast<float>(a), 16))));
  return static_cast<uint8_t>(sign | ((a - 0x38000000u + 0xfffffu + ((a >> 21) & 1u)) >> 21));
}

/// OCP MX scale: 2^(b - 127), 255 is NaN.
inline float f8_e8m0_to_f32(uint8_t b) {
  return b == 255 ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0f, b - 127);
}
/// OCP FP4: sign, two bits of exponent, one of mantissa; the low four bits of `b`.
inline float f4_e2m1_to_f32(uint8_t b) {
  constexpr float kLevels[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  return (b & 8) ? -kLevels[b & 7] : kLevels[b & 7];
}

}  // namespace danqing
