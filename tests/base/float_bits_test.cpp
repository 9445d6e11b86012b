// Narrow floats, exhaustively: every value widens to its definition, and comes back as itself.
#include "base/float_bits.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "base/tensor.h"

namespace danqing {
namespace {

// IEEE 754 value of sign, exponent and mantissa in double: the definition, not the bit trick under test.
double value_of(uint32_t bits, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int e = static_cast<int>(bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const double fraction = static_cast<double>(bits & ((1u << mantissa_bits) - 1)) / (1 << mantissa_bits);
  const bool negative = (bits >> (exponent_bits + mantissa_bits)) & 1;
  double v = e == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, e - bias);
  if (e == (1 << exponent_bits) - 1) v = fraction == 0 ? INFINITY : NAN;
  return negative ? -v : v;
}

TEST(FloatBits, EveryF16) {
  for (uint32_t b = 0; b < 65536; ++b) {
    const float f = f16_to_f32(static_cast<uint16_t>(b));
    const double want = value_of(b, 5, 10);
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(f)) << b;
      ASSERT_TRUE(std::isnan(f16_to_f32(f32_to_f16(f)))) << b;
    } else {
      ASSERT_EQ(f, want) << b;
      ASSERT_EQ(std::signbit(f), std::signbit(want)) << b;
      ASSERT_EQ(f32_to_f16(f), b);
    }
  }
}

TEST(FloatBits, EveryBf16) {
  for (uint32_t b = 0; b < 65536; ++b) {
    const float f = bf16_to_f32(static_cast<uint16_t>(b));
    const double want = value_of(b, 8, 7);
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(f)) << b;
      ASSERT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(f)))) << b;
    } else {
      ASSERT_EQ(f, want) << b;
      ASSERT_EQ(f32_to_bf16(f), b);
    }
  }
}

// Between neighbours: below the middle down, above it up, on it to the even one.
template <class Narrow, class Widen>
void check_rounding(Narrow narrow, Widen widen, uint32_t largest) {
  for (uint32_t b = 0; b < largest; ++b) {
    const float lo = widen(static_cast<uint16_t>(b)), hi = widen(static_cast<uint16_t>(b + 1));
    const float middle = static_cast<float>((static_cast<double>(lo) + hi) / 2);
    const uint32_t even = b % 2 == 0 ? b : b + 1;
    for (const bool negative : {false, true}) {
      const uint32_t sign = negative ? 0x8000 : 0;
      const float s = negative ? -1.f : 1.f;
      ASSERT_EQ(narrow(s * middle), sign | even) << b;
      ASSERT_EQ(narrow(s * std::nextafterf(middle, lo)), sign | b) << b;
      ASSERT_EQ(narrow(s * std::nextafterf(middle, hi)), sign | (b + 1)) << b;
    }
  }
}

TEST(FloatBits, RoundingToF16) { check_rounding(f32_to_f16, f16_to_f32, 0x7bff); }
TEST(FloatBits, RoundingToBf16) { check_rounding(f32_to_bf16, bf16_to_f32, 0x7f7f); }

TEST(FloatBits, Overflow) {
  EXPECT_EQ(f32_to_f16(65519.996f), 0x7bff);  // rounds down to 65504
  EXPECT_EQ(f32_to_f16(65520.f), 0x7c00);     // the tie goes to infinity
  EXPECT_EQ(f32_to_f16(-1e30f), 0xfc00);
  EXPECT_EQ(f32_to_f16(INFINITY), 0x7c00);
  EXPECT_EQ(f32_to_bf16(3.4e38f), 0x7f80);
  EXPECT_EQ(f32_to_bf16(-INFINITY), 0xff80);
  EXPECT_EQ(f32_to_f16(1e-30f), 0);
  EXPECT_EQ(f32_to_f16(-0.f), 0x8000);
  // A NaN whose mantissa bits are all in the part that is cut off stays a NaN.
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(std::bit_cast<float>(0x7f800001u)))));
  EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(std::bit_cast<float>(0xff800001u)))));
}

TEST(FloatBits, RoundHelpers) {
  EXPECT_EQ(round_bf16(987.5f), 988.f);  // timesteps above 512 are multiples of 4 in bf16
  EXPECT_EQ(round_bf16(750.f), 752.f);
  EXPECT_EQ(round_f16(0.1f), 0.0999755859375f);
}

// Every code goes there and back; ties go to the even code; what is too large becomes the largest.
template <class Narrow, class Widen>
void check_eight_bits(Narrow narrow, Widen widen, uint8_t largest) {
  for (int b = 0; b <= largest; ++b) {
    const auto code = static_cast<uint8_t>(b);
    ASSERT_EQ(narrow(widen(code)), code);
    ASSERT_EQ(narrow(-widen(code)), code | 0x80);
    if (b == largest) break;
    const float lo = widen(code), hi = widen(static_cast<uint8_t>(b + 1)), middle = (lo + hi) / 2;
    ASSERT_EQ(narrow(middle), b % 2 == 0 ? b : b + 1) << b;
    ASSERT_EQ(narrow(std::nextafterf(middle, lo)), b) << b;
    ASSERT_EQ(narrow(std::nextafterf(middle, hi)), b + 1) << b;
  }
  EXPECT_EQ(narrow(1e30f), largest);
  EXPECT_EQ(narrow(-1e30f), largest | 0x80);
  EXPECT_EQ(narrow(std::nextafterf(widen(largest), INFINITY)), largest);
  EXPECT_TRUE(std::isnan(widen(narrow(NAN))));
}

TEST(FloatBits, EightBits) {
  check_eight_bits(f32_to_f8_e4m3, f8_e4m3_to_f32, 0x7e);
  check_eight_bits(f32_to_f8_e5m2, f8_e5m2_to_f32, 0x7b);
  EXPECT_TRUE(std::isnan(f8_e4m3_to_f32(f32_to_f8_e4m3(INFINITY))));  // has no infinity
  EXPECT_EQ(f8_e5m2_to_f32(f32_to_f8_e5m2(-INFINITY)), -INFINITY);
  EXPECT_EQ(f8_e8m0_to_f32(127), 1.0f);
  EXPECT_EQ(f8_e8m0_to_f32(0), std::ldexp(1.0f, -127));
  EXPECT_EQ(f8_e8m0_to_f32(254), std::ldexp(1.0f, 127));
  EXPECT_TRUE(std::isnan(f8_e8m0_to_f32(255)));
}

TEST(FloatBits, FourBits) {
  const float levels[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  for (uint8_t b = 0; b < 8; ++b) {
    EXPECT_EQ(f4_e2m1_to_f32(b), levels[b]);
    EXPECT_EQ(f4_e2m1_to_f32(static_cast<uint8_t>(b | 8)), -levels[b]);
    EXPECT_EQ(f4_e2m1_to_f32(static_cast<uint8_t>(b | 0x50)), levels[b]);  // the other half of the byte
  }
}

}  // namespace
}  // namespace danqing
