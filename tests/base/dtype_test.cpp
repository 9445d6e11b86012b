#include "base/dtype.h"

#include <gtest/gtest.h>

#include <set>

namespace danqing {
namespace {

DType at(int i) { return static_cast<DType>(i); }

TEST(DType, EveryNameFindsItsTypeAgain) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const DTypeTraits& t = traits(at(i));
    EXPECT_EQ(dtype_from_name(t.name), at(i)) << t.name;
    if (!t.safetensors.empty()) {
      EXPECT_EQ(dtype_from_safetensors(t.safetensors), at(i)) << t.name;
    }
    if (t.ggml_type >= 0) {
      EXPECT_EQ(dtype_from_ggml(t.ggml_type), at(i)) << t.name;
    }
  }
}

TEST(DType, NamesAndNumbersAreUnique) {
  std::set<std::string_view> names, tags;
  std::set<int> numbers;
  int with_tag = 0, with_number = 0;
  for (int i = 0; i < kDTypeCount; ++i) {
    const DTypeTraits& t = traits(at(i));
    names.insert(t.name);
    if (!t.safetensors.empty()) tags.insert(t.safetensors), ++with_tag;
    if (t.ggml_type >= 0) numbers.insert(t.ggml_type), ++with_number;
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(kDTypeCount));
  EXPECT_EQ(tags.size(), static_cast<size_t>(with_tag));
  EXPECT_EQ(numbers.size(), static_cast<size_t>(with_number));
  EXPECT_EQ(with_tag, 16);
}

TEST(DType, PlainTypesAreTheOnesOfSafetensors) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const DTypeTraits& t = traits(at(i));
    EXPECT_EQ(is_quantized(at(i)), t.safetensors.empty()) << t.name;
    EXPECT_GT(t.block_bytes, 0);
    // A quantised block takes less than half of f32's bytes, or the row in the table is wrong.
    if (is_quantized(at(i))) {
      EXPECT_LT(t.block_bytes, t.block_elements * 2) << t.name;
    }
  }
}

TEST(DType, NamesInAnyCaseAndUnknownOnes) {
  EXPECT_EQ(dtype_from_name("BF16"), DType::bf16);
  EXPECT_EQ(dtype_from_name("Q4_k"), DType::q4_k);
  EXPECT_EQ(dtype_from_safetensors("F8_E4M3"), DType::f8_e4m3);
  for (std::string_view no : {"", "f", "float32", "q4", "q4_0 "}) EXPECT_FALSE(dtype_from_name(no).has_value()) << no;
  for (std::string_view no : {"", "f32", "F4", "Q4_0"}) EXPECT_FALSE(dtype_from_safetensors(no).has_value()) << no;
  for (int no : {-1, 4, 5, 9, 15, 31, 1000}) EXPECT_FALSE(dtype_from_ggml(no).has_value()) << no;
}

}  // namespace
}  // namespace danqing
