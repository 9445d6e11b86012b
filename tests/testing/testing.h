// Helpers that every test may use.
#pragma once
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/tensor.h"
#include "checkpoint/tensor_source.h"

namespace danqing::testing {

/// The unpacked test data: fixtures/ernie-tiny, fixtures/units, tokenizers/tekken, ... ; e.g. data("fixtures/units").
std::filesystem::path data(std::string_view relative);
/// models/danqing-mini of the checkout.
std::filesystem::path mini_model();

/// A golden file "X.safetensors" with its "X.json" beside it.
struct Golden {
  std::shared_ptr<const TensorSource> source;
  Json json;
  Tensor f32(std::string_view name) const;  ///< fails the test and returns an empty tensor if absent
  std::vector<int32_t> ids(std::string_view name) const;
  bool has(std::string_view name) const { return source->find(name) != nullptr; }
};
Golden golden(std::string_view relative_without_extension);  ///< under fixtures/, e.g. "ernie-tiny/golden/dit_f32"

struct Difference {
  double max_abs = 0, rel_l2 = 0;
};
Difference difference(const Tensor& got, const Tensor& expected);
/// Passes when shapes agree, nothing is NaN and rel_l2 <= tolerance.
::testing::AssertionResult close(const Tensor& got, const Tensor& expected, double rel_l2);

/// A directory of its own that is removed at the end.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

}  // namespace danqing::testing

/// The value of a Result, or a failed test with its message.
#define DQ_ASSERT_OK(decl, ...)                                                                   \
  auto DQ_TEST_CAT(dq_r_, __LINE__) = (__VA_ARGS__);                                              \
  ASSERT_TRUE(DQ_TEST_CAT(dq_r_, __LINE__).ok()) << DQ_TEST_CAT(dq_r_, __LINE__).error().message; \
  decl = std::move(DQ_TEST_CAT(dq_r_, __LINE__)).value()
#define DQ_TEST_CAT2(a, b) a##b
#define DQ_TEST_CAT(a, b) DQ_TEST_CAT2(a, b)
