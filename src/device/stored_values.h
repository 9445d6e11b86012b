// A tensor of a checkpoint as values in the order of the weights: whatever its dtype, its scales and the order of its
// rows. A kernel that multiplies FP8 or 4-bit weights itself takes the bytes and TensorInfo::scale instead.
#pragma once
#include <span>

#include "checkpoint/adapter.h"
#include "checkpoint/scale_table.h"
#include "checkpoint/tensor_source.h"

namespace danqing {

class StoredValues {
 public:
  /// `source` must outlive the object. `row`: values in a row, where it is not the last axis (0 = it is): a 1x1 kernel
  /// that is used as a matrix. Error (bad_input) as ScaleTable::read.
  static Result<StoredValues> open(const TensorSource& source, const TensorInfo& tensor, int64_t row = 0);
  /// For questions about sizes alone: reads nothing, not even scales. read() and raw() must not be called.
  static StoredValues outline(const TensorInfo& tensor, int64_t row = 0);
  /// Bytes that are the weights as they stand, in rows of `row` values.
  StoredValues(DType dtype, std::span<const std::byte> bytes, int64_t count, int64_t row)
      : dtype_(dtype), bytes_(bytes), count_(count), row_(row) {}

  DType dtype() const { return dtype_; }
  int64_t count() const { return count_; }
  int64_t row() const { return row_; }
  bool scaled() const { return scaled_; }        ///< scales or an adapter's change come on top
  bool reordered() const { return head_ != 0; }  ///< the rows of each head lie interleaved
  /// Host memory that decoding the scales takes.
  uint64_t scale_bytes() const { return scale_bytes_; }
  /// Values that read() and raw() can start at and stop at: whole blocks, and whole rows when these are reordered.
  int64_t unit() const;
  /// The bytes that hold the weights as they stand; empty when there are none (scaled or reordered).
  std::span<const std::byte> as_stored() const { return scaled_ || head_ != 0 ? std::span<const std::byte>() : bytes_; }

  /// Values first ... first + out.size() - 1, both multiples of unit(). Any number of threads.
  Result<void> read(int64_t first, std::span<float> out) const;
  /// The same values in the stored dtype; of unscaled tensors.
  void raw(int64_t first, std::span<std::byte> out) const;

 private:
  std::span<const std::byte> stored(int64_t first, int64_t n) const;
  int64_t stored_row(int64_t row) const;
  DType dtype_;
  std::span<const std::byte> bytes_;
  int64_t count_ = 0, row_ = 1;
  bool scaled_ = false;
  uint64_t scale_bytes_ = 0;
  ScaleTable scale_;
  bool has_scale_ = false;
  std::shared_ptr<const TensorDelta> delta_;
  int64_t head_ = 0;  ///< TensorInfo::interleaved_head
};

/// Bytes of `values` values, whole blocks.
size_t stored_bytes(DType t, int64_t values);

}  // namespace danqing
