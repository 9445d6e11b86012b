#include "device/dequantize.h"

#include <ggml.h>

#include <cmath>
#include <cstring>

#include "testing/testing.h"

namespace danqing {
namespace {

TEST(DTypeTable, AgreesWithGgml) {
  int known = 0;
  for (int i = 0; i < kDTypeCount; ++i) {
    const DTypeTraits& t = traits(static_cast<DType>(i));
    if (t.ggml_type < 0) continue;
    const auto type = static_cast<ggml_type>(t.ggml_type);
    EXPECT_EQ(t.block_elements, ggml_blck_size(type)) << t.name;
    EXPECT_EQ(static_cast<size_t>(t.block_bytes), ggml_type_size(type)) << t.name;
    EXPECT_EQ(t.name, t.block_elements > 1 ? ggml_type_name(type) : t.name);
    ++known;
  }
  EXPECT_GE(known, 30);
}

class Blocks : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Types, Blocks,
                         ::testing::Values("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "Q4_0", "Q4_1", "Q5_0", "Q5_1",
                                           "Q8_0", "IQ4_NL", "IQ4_XS", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S",
                                           "IQ1_S", "IQ1_M", "TQ1_0", "TQ2_0", "MXFP4"),
                         [](const auto& param) { return std::string(param.param); });

/// Values that decode to within one unit in the last place: gguf-py multiplies scale and level in another order.
void expect_within_one_ulp(float got, float expected, const std::string& where) {
  const float up = std::nextafter(expected, INFINITY), down = std::nextafter(expected, -INFINITY);
  EXPECT_TRUE(got == expected || got == up || got == down) << where << ": " << got << ", expected " << expected;
}

TEST_P(Blocks, DecodeAsGgufPyDoes) {
  const testing::Golden g = testing::golden("gguf/blocks");
  const std::string type = GetParam();
  const TensorInfo* raw = g.source->find(type + ".raw");
  ASSERT_NE(raw, nullptr);
  const Tensor expected = g.f32(type + ".values");
  const auto dtype = dtype_from_name(type);
  ASSERT_TRUE(dtype);
  EXPECT_EQ(traits(*dtype).ggml_type, g.json["types"][type]["ggml_type"].get<int>());
  std::vector<float> got(expected.data.size());
  ASSERT_TRUE(dequantize(*dtype, g.source->bytes(*raw), got).ok());
  for (size_t i = 0; i < got.size(); ++i)
    expect_within_one_ulp(got[i], expected.data[i], type + " value " + std::to_string(i));
}

TEST(Nvfp4, DecodesScalesAndLevels) {
  // 64 values in four groups of 16: four E4M3 scales, then the levels, the low nibbles first within each group.
  std::vector<std::byte> block(36, std::byte{0});
  for (size_t i = 0; i < 4; ++i) block[i] = std::byte{0x38};      // 1.0, halved below
  for (size_t i = 0; i < 8; ++i) block[4 + i] = std::byte{0x72};  // group 0: low nibble 2, high nibble 7
  std::vector<float> out(64);
  ASSERT_TRUE(dequantize(DType::nvfp4, block, out).ok());
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(out[i], 1.0f) << i;      // E2M1 level 2 is 1.0
    EXPECT_EQ(out[8 + i], 6.0f) << i;  // level 7 is 6.0
  }
  for (size_t i = 16; i < 64; ++i) EXPECT_EQ(out[i], 0.0f) << i;
}

TEST(Quantize, RoundTripStaysWithinTheStep) {
  std::vector<float> row(512);
  for (size_t i = 0; i < row.size(); ++i) row[i] = std::sin(0.7f * static_cast<float>(i));
  // Largest error for values in -1..1: half a step of the type (bits of the level), with some slack for coded scales.
  for (const auto& [dtype, most] :
       {std::pair(DType::f32, 0.0), std::pair(DType::bf16, 0.002), std::pair(DType::f16, 0.00025),
        std::pair(DType::q8_0, 0.005), std::pair(DType::q6_k, 0.04), std::pair(DType::q5_0, 0.07),
        std::pair(DType::q4_0, 0.15), std::pair(DType::q4_k, 0.12)}) {
    std::vector<std::byte> stored(row.size() / static_cast<size_t>(traits(dtype).block_elements) *
                                  static_cast<size_t>(traits(dtype).block_bytes));
    ASSERT_TRUE(quantize(dtype, row, 256, stored).ok()) << name(dtype);
    std::vector<float> back(row.size());
    ASSERT_TRUE(dequantize(dtype, stored, back).ok()) << name(dtype);
    for (size_t i = 0; i < row.size(); ++i) ASSERT_NEAR(back[i], row[i], most) << name(dtype) << " " << i;
  }
}

TEST(Quantize, RefusesWhatItCannotDo) {
  std::vector<float> values(64, 1.0f);
  std::vector<std::byte> out(1024);
  EXPECT_FALSE(quantize(DType::q8_0, values, 64, std::span(out).first(67)).ok());  // room for 68 is needed
  EXPECT_FALSE(quantize(DType::q8_0, values, 16, std::span(out).first(68)).ok());  // rows of half a block
  EXPECT_FALSE(quantize(DType::q4_k, values, 64, std::span(out).first(36)).ok());  // 64 of 256 values
  EXPECT_FALSE(quantize(DType::i64, values, 64, std::span(out).first(512)).ok());
  std::vector<float> more(256, 1.0f);
  const auto refused = quantize(DType::iq2_xxs, more, 256, std::span(out).first(66));  // needs an importance matrix
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::usage);
}

TEST(Dequantize, RefusesPartialBlocks) {
  std::vector<std::byte> stored(34);
  std::vector<float> out(32);
  EXPECT_TRUE(dequantize(DType::q8_0, stored, out).ok());
  EXPECT_FALSE(dequantize(DType::q8_0, std::span(stored).first(33), out).ok());
  EXPECT_FALSE(dequantize(DType::q8_0, stored, std::span(out).first(31)).ok());
  EXPECT_TRUE(dequantize(DType::q8_0, {}, {}).ok());
}

}  // namespace
}  // namespace danqing
