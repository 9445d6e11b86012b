// The scale of one tensor, decoded, ready to multiply any run of its values.
#pragma once
#include <span>
#include <vector>

#include "checkpoint/tensor_source.h"

namespace danqing {

class ScaleTable {
 public:
  /// Error (bad_input) when a scale is not a finite number. A tensor without scale gives a table that changes nothing.
  static Result<ScaleTable> read(const TensorSource& source, const TensorInfo& tensor);
  /// Multiplies values `first` and on of the tensor (row-major, as stored), in f32, rounding once for each factor pair.
  /// Any number of threads.
  void multiply(int64_t first, std::span<float> values) const;
  /// Of layouts tensor and rows: one factor, or one a row.
  std::span<const float> by_row() const { return factors_; }

 private:
  std::vector<float> factors_;  ///< one, one a row, or a row-major grid; the global factor already in it
  int64_t columns_ = 1;         ///< values in a row
  int64_t block_rows_ = 1, block_columns_ = 1, grid_columns_ = 1;
};

/// Where the scale of block (row, column) of a matrix lies among the stored ones, for layouts grid and tiles;
/// `grid_columns` blocks in a row.
size_t scale_index(const TensorScale& scale, int64_t row, int64_t column, int64_t grid_columns);

}  // namespace danqing
