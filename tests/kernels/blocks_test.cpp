// Block formats against ggml's decoder, on every instruction set that this processor runs; FP8 against its own.
#include "device/kernels/blocks.h"

#include <ggml.h>

#include <bit>
#include <cmath>
#include <random>
#include <span>

#include "device/dequantize.h"
#include "device/kernels/rows.h"
#include "testing/testing.h"

namespace danqing::kernels {
namespace {

constexpr DType kTypes[] = {DType::q8_0,   DType::q4_0,   DType::q4_1,  DType::q5_0, DType::q5_1,
                            DType::q2_k,   DType::q3_k,   DType::q4_k,  DType::q5_k, DType::q6_k,
                            DType::iq4_nl, DType::iq4_xs, DType::mxfp4, DType::nvfp4};

std::vector<float> decoded(DType type, const std::vector<uint8_t>& blocks) {
  std::vector<float> out(blocks.size() / static_cast<size_t>(traits(type).block_bytes) *
                         static_cast<size_t>(traits(type).block_elements));
  ggml_get_type_traits(static_cast<ggml_type>(traits(type).ggml_type))
      ->to_float(blocks.data(), out.data(), static_cast<int64_t>(out.size()));
  return out;
}

std::vector<uint8_t> quantised(DType type, int64_t count, unsigned seed) {
  std::mt19937 gen(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count * traits(type).block_elements));
  for (float& v : values) v = normal(gen);
  std::vector<uint8_t> blocks(static_cast<size_t>(count * traits(type).block_bytes));
  EXPECT_TRUE(
      quantize(type, values, static_cast<int64_t>(values.size()), std::as_writable_bytes(std::span(blocks))).ok());
  return blocks;
}

/// Values whose bits differ; one NaN is as good as another.
size_t differences(const std::vector<float>& a, const float* b) {
  size_t n = 0;
  for (size_t i = 0; i < a.size(); ++i)
    n += std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i]) && !(std::isnan(a[i]) && std::isnan(b[i]));
  return n;
}

/// Bytes that are drawn from all values in half of the cases, and `usual` in the others: scales that are zero,
/// subnormal, infinite or NaN, in every combination.
std::vector<uint8_t> random_bytes(size_t n, int usual, unsigned seed) {
  std::mt19937 gen(seed);
  std::vector<uint8_t> bytes(n);
  for (uint8_t& b : bytes) b = static_cast<uint8_t>(usual >= 0 && gen() % 2 ? usual : static_cast<int>(gen() % 256));
  return bytes;
}

TEST(Blocks, DecodeBitForBit) {
  for (const BlockKernelTable& set : all_block_kernels())
    for (DType type : kTypes) {
      const BlockKernels& k = set.kernels[static_cast<int>(type)];
      ASSERT_NE(k.expand, nullptr) << set.name << " " << name(type);
      for (int usual : {-1, 0x00, 0x01, 0x7c, 0x80, 0xfc, 0xff})
        for (int64_t count : {1, 2, 3, 64}) {
          const auto bytes = random_bytes(static_cast<size_t>(count * traits(type).block_bytes), usual,
                                          static_cast<unsigned>(usual + 1000 * count));
          const std::vector<float> expected = decoded(type, bytes);
          std::vector<float> got(expected.size() + 1, -7.0f);
          k.expand(bytes.data(), count, got.data());
          EXPECT_EQ(differences(expected, got.data()), 0u) << set.name << " " << name(type) << " " << usual;
          EXPECT_EQ(got.back(), -7.0f);
        }
    }
}

TEST(Blocks, ExpandGoesByTheBestInstructionSet) {
  for (DType type : kTypes) {
    ASSERT_TRUE(expands(type)) << name(type);
    if (!all_block_kernels().empty()) {
      EXPECT_EQ(block_kernels(type).expand, all_block_kernels().front().kernels[static_cast<int>(type)].expand);
    }
    const auto bytes = random_bytes(static_cast<size_t>(4 * traits(type).block_bytes), -1, 3);
    const std::vector<float> expected = decoded(type, bytes);
    std::vector<float> got(expected.size());
    expand(type, std::as_bytes(std::span(bytes)).data(), static_cast<int64_t>(got.size()), got.data());
    EXPECT_EQ(differences(expected, got.data()), 0u) << name(type);
  }
  EXPECT_EQ(block_kernels(DType::f32).expand, nullptr);
  EXPECT_EQ(block_kernels(DType::iq1_s).expand, nullptr);
}

TEST(Blocks, DotIsTheSumOfDecodedValues) {
  for (const BlockKernelTable& set : all_block_kernels())
    for (DType type : kTypes)
      for (int64_t count : {1, 2, 5, 16})
        for (int rows = 1; rows <= 4; ++rows) {
          const auto blocks = quantised(type, count, static_cast<unsigned>(count));
          const std::vector<float> w = decoded(type, blocks);
          const auto k = static_cast<int64_t>(w.size()), ldx = k + 3;
          std::mt19937 gen(static_cast<unsigned>(rows));
          std::normal_distribution<float> normal;
          std::vector<float> x(static_cast<size_t>((rows - 1) * ldx + k));  // nothing behind the last row
          for (float& v : x) v = normal(gen);
          float y[4] = {-7, -7, -7, -7};
          set.kernels[static_cast<int>(type)].dot(blocks.data(), count, x.data(), ldx, rows, y);
          for (int r = 0; r < 4; ++r) {
            if (r >= rows) {
              EXPECT_EQ(y[r], -7.0f);
              continue;
            }
            double sum = 0, size = 0;
            for (int64_t i = 0; i < k; ++i) {
              const double p = static_cast<double>(w[static_cast<size_t>(i)]) * x[static_cast<size_t>(r * ldx + i)];
              sum += p, size += p * p;
            }
            // Measured 6e-7 at 4096 values: f32 sums, and offsets that are as large as the values.
            EXPECT_NEAR(y[r], sum, 2e-6 * std::sqrt(size)) << set.name << " " << name(type) << " " << count;
          }
        }
}

TEST(Blocks, DotKeepsNaN) {
  for (const BlockKernelTable& set : all_block_kernels())
    for (DType type : {DType::q8_0, DType::q4_0, DType::iq4_nl}) {  // the scale is in the first two bytes
      auto blocks = quantised(type, 4, 1);
      blocks[0] = 0xff, blocks[1] = 0x7e;
      const std::vector<float> x(128, 1.0f);
      float y = 0;
      set.kernels[static_cast<int>(type)].dot(blocks.data(), 4, x.data(), 128, 1, &y);
      EXPECT_TRUE(std::isnan(y)) << set.name << " " << name(type);
    }
}

TEST(Fp8, EveryByteAndEveryLength) {
  std::vector<uint8_t> bytes(256);
  for (size_t i = 0; i < 256; ++i) bytes[i] = static_cast<uint8_t>(i);
  for (DType type : {DType::f8_e4m3, DType::f8_e5m2}) {
    ASSERT_TRUE(expands(type));
    for (size_t n : {size_t{256}, size_t{1}, size_t{7}, size_t{16}, size_t{19}, size_t{45}})
      for (size_t first = 0; first + n <= 256; first += n) {
        const std::vector<uint8_t> part(bytes.begin() + static_cast<long>(first),
                                        bytes.begin() + static_cast<long>(first + n));
        std::vector<float> expected(n), got(n + 1, -7.0f);
        ASSERT_TRUE(dequantize(type, std::as_bytes(std::span(part)), expected).ok());
        expand(type, std::as_bytes(std::span(part)).data(), static_cast<int64_t>(n), got.data());
        EXPECT_EQ(differences(expected, got.data()), 0u) << name(type) << " " << first << " " << n;
        EXPECT_EQ(got[n], -7.0f);
      }
  }
}

TEST(Fp8, DotsAreSumsOfDecodedValues) {
  for (DType type : {DType::f8_e4m3, DType::f8_e5m2})
    for (size_t k : {1u, 15u, 64u, 77u, 1000u}) {
      std::vector<uint8_t> bytes = random_bytes(4 * k, -1, static_cast<unsigned>(k));
      for (uint8_t& b : bytes)
        if ((b & 0x7f) >= 0x78) b = 0x3c;  // finite in both
      std::vector<float> w(4 * k), x(4 * k);
      const auto stored = std::as_bytes(std::span(bytes));
      ASSERT_TRUE(dequantize(type, stored, w).ok());
      for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 37 % 101) / 50 - 1;
      float rows[4], columns[4];
      dot(type, stored.data(), x.data(), static_cast<int64_t>(k), 4, static_cast<int64_t>(k), rows);
      dot_columns(type, stored.data(), k, x.data(), static_cast<int64_t>(k), columns);
      for (size_t c = 0; c < 4; ++c) {
        double row = 0, row_size = 0, column = 0, column_size = 0;
        for (size_t i = 0; i < k; ++i) {
          const double r = static_cast<double>(w[i]) * x[c * k + i], q = static_cast<double>(w[c * k + i]) * x[i];
          row += r, row_size += r * r, column += q, column_size += q * q;
        }
        EXPECT_NEAR(rows[c], row, 2e-6 * std::sqrt(row_size)) << name(type) << " " << k;  // rounding of f32 sums
        EXPECT_NEAR(columns[c], column, 2e-6 * std::sqrt(column_size)) << name(type) << " " << k;
      }
    }
}

}  // namespace
}  // namespace danqing::kernels
