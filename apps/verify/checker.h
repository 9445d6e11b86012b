// What a case does with its results: compares them and gets rows. Comparisons under one row name share a row, which
// then shows the worst of them.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "danqing/image.h"
#include "verify/golden.h"
#include "verify/report.h"
#include "verify/tolerance.h"

namespace danqing::app::verify {

class Checker {
 public:
  explicit Checker(std::string stage) : stage_(std::move(stage)) {}

  /// The golden tensor `key` against `got`; shapes must agree.
  void compare(const std::string& row, Golden& golden, const std::string& key, const Tensor& got, const Tolerance& t);
  /// Values that are not in a golden file themselves.
  void compare(const std::string& row, const Tensor& expected, const Tensor& got, const Tolerance& t);
  /// Whole numbers, exactly.
  void same(const std::string& row, Golden& golden, const std::string& key, std::span<const int64_t> got);
  void same(const std::string& row, std::span<const int64_t> expected, std::span<const int64_t> got);
  /// Texts, exactly.
  void same(const std::string& row, std::string_view expected, std::string_view got);
  /// A yes-or-no check; `note` says what was expected and what came.
  void require(const std::string& row, bool ok, const std::string& note);

  /// The bf16 rule: `got` (computed in bf16) against the f32 golden (rows "NAME vs f32") and the bf16 golden ("NAME").
  /// `torch_error`: torch's relative L2 there as measured; without it the two goldens tell. `floor`: f32 tolerance,
  /// below which nothing is asked. Either golden may lack the key.
  void bf16(const std::string& row, Golden& bf16_golden, const std::string& key, Golden& f32_golden,
            const std::string& f32_key, const Tensor& got, std::optional<double> torch_error, double floor);

  void fail(const std::string& row, const std::string& why);
  void skip(const std::string& row, const std::string& why, int values = 1);
  std::vector<Row> take() { return std::move(rows_); }
  bool empty() const { return rows_.empty(); }

 private:
  Row& row(const std::string& name);
  bool judge(const std::string& name, const Tensor& expected, const Tensor& got, const Tolerance& t);
  std::string stage_;
  std::vector<Row> rows_;
};

/// Pictures as [n, H, W, 3] of 0..255.
Tensor pixels(const std::vector<Image>& images);
double relative_l2(const Tensor& got, const Tensor& expected);

}  // namespace danqing::app::verify
