#include "checkpoint/scale_table.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "base/try.h"

namespace danqing {
namespace {

using Layout = TensorScale::Layout;

/// Where block (row, column) of a matrix lies in cuBLAS' order: tiles of 128 rows by 4 blocks, one row of tiles after
/// the other; in a tile row r stands with r % 32 first, then r / 32.
/// https://docs.nvidia.com/cuda/cublas/#d-block-scaling-factors-layout
size_t tiled_index(int64_t row, int64_t column, int64_t tiles_across) {
  const int64_t tile = row / 128 * tiles_across + column / 4, r = row % 128;
  return static_cast<size_t>(tile * 512 + r % 32 * 16 + r / 32 * 4 + column % 4);
}

Result<std::vector<float>> floats(const TensorSource& source, const TensorInfo& t) {
  std::vector<float> out(static_cast<size_t>(element_count(t.shape)));
  // A power of two is stored as f8_e8m0, by older writers as uint8.
  DQ_CHECK(decode_f32(t.dtype == DType::u8 ? DType::f8_e8m0 : t.dtype, source.bytes(t), out));
  return out;
}

}  // namespace

size_t scale_index(const TensorScale& scale, int64_t row, int64_t column, int64_t grid_columns) {
  return scale.layout == Layout::tiles ? tiled_index(row, column, (grid_columns + 3) / 4)
                                       : static_cast<size_t>(row / scale.block_rows * grid_columns + column);
}

Result<ScaleTable> ScaleTable::read(const TensorSource& source, const TensorInfo& tensor) {
  ScaleTable table;
  if (!tensor.scale) return table;
  const TensorScale& s = *tensor.scale;
  DQ_TRY(std::vector<float> stored, floats(source, s.values));
  const int64_t rows = tensor.shape.empty() ? 1 : tensor.shape[0];
  table.columns_ = rows > 0 ? element_count(tensor.shape) / rows : 1;
  table.block_rows_ = s.layout == Layout::tensor ? std::max<int64_t>(rows, 1) : s.block_rows;
  table.block_columns_ = s.layout == Layout::grid || s.layout == Layout::tiles ? s.block_columns : table.columns_;
  if (table.block_columns_ < 1) table.block_columns_ = table.columns_ = 1;  // an empty tensor
  table.grid_columns_ = (table.columns_ + table.block_columns_ - 1) / table.block_columns_;
  if (s.layout == Layout::tiles) {
    const int64_t across = (table.grid_columns_ + 3) / 4;
    table.factors_.reserve(static_cast<size_t>(rows * table.grid_columns_));
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < table.grid_columns_; ++c) table.factors_.push_back(stored[tiled_index(r, c, across)]);
  } else {
    table.factors_ = std::move(stored);
  }
  if (s.global) {
    DQ_TRY(const std::vector<float> global, floats(source, *s.global));
    for (float& f : table.factors_) f *= global[0];
  }
  if (!std::all_of(table.factors_.begin(), table.factors_.end(), [](float f) { return std::isfinite(f); }))
    return bad_input("[checkpoint] {}: tensor '{}' expected finite scales, got one that is not", source.path().string(),
                     one_line(tensor.name));
  return table;
}

void ScaleTable::multiply(int64_t first, std::span<float> values) const {
  if (factors_.empty()) return;
  for (size_t i = 0; i < values.size();) {
    const int64_t at = first + static_cast<int64_t>(i), row = at / columns_, column = at % columns_;
    const int64_t block = column / block_columns_;
    const float factor = factors_[static_cast<size_t>(row / block_rows_ * grid_columns_ + block)];
    const int64_t end = std::min((block + 1) * block_columns_, columns_);  // of the block in this row
    const size_t stop = std::min(values.size(), i + static_cast<size_t>(end - column));
    for (; i < stop; ++i) values[i] *= factor;
  }
}

}  // namespace danqing
