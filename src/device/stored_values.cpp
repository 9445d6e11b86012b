#include "device/stored_values.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/try.h"
#include "device/dequantize.h"

namespace danqing {

size_t stored_bytes(DType t, int64_t values) {
  return static_cast<size_t>(values / traits(t).block_elements) * static_cast<size_t>(traits(t).block_bytes);
}

StoredValues StoredValues::outline(const TensorInfo& tensor, int64_t row) {
  if (row == 0) row = tensor.shape.empty() ? 1 : std::max<int64_t>(tensor.shape.back(), 1);
  StoredValues v(tensor.dtype, {}, element_count(tensor.shape), row);
  v.head_ = tensor.interleaved_head;
  v.delta_ = tensor.delta;
  v.scaled_ = tensor.scale || tensor.delta;
  v.has_scale_ = tensor.scale != nullptr;
  if (!tensor.scale) return v;
  const uint64_t table = static_cast<uint64_t>(element_count(tensor.scale->values.shape)) * sizeof(float);
  v.scale_bytes_ = tensor.scale->layout == TensorScale::Layout::tiles ? 2 * table : table;  // once in each order
  return v;
}

Result<StoredValues> StoredValues::open(const TensorSource& source, const TensorInfo& tensor, int64_t row) {
  StoredValues v = outline(tensor, row);
  v.bytes_ = source.bytes(tensor);
  DQ_TRY(v.scale_, ScaleTable::read(source, tensor));
  return v;
}

int64_t StoredValues::unit() const {
  const int64_t block = traits(dtype_).block_elements;
  return head_ != 0 ? std::lcm(block, row_) : block;
}

std::span<const std::byte> StoredValues::stored(int64_t first, int64_t n) const {
  return bytes_.subspan(stored_bytes(dtype_, first), stored_bytes(dtype_, n));
}

// Row j * head/2 + i of the weights is row 2i + j of the file.
int64_t StoredValues::stored_row(int64_t row) const {
  const int64_t half = head_ / 2, in_head = row % head_;
  return row - in_head + in_head % half * 2 + in_head / half;
}

Result<void> StoredValues::read(int64_t first, std::span<float> out) const {
  const auto n = static_cast<int64_t>(out.size());
  const int64_t run = head_ != 0 ? row_ : n;  // values that lie together in the file
  for (int64_t done = 0; done < n; done += run) {
    const int64_t at = head_ != 0 ? stored_row((first + done) / row_) * row_ : first;
    const std::span<float> piece = out.subspan(static_cast<size_t>(done), static_cast<size_t>(run));
    DQ_CHECK(dequantize(dtype_, stored(at, run), piece));
    if (has_scale_) scale_.multiply(at, piece);
    if (delta_) delta_->add(first + done, piece);
  }
  return {};
}

void StoredValues::raw(int64_t first, std::span<std::byte> out) const {
  const size_t row_bytes = stored_bytes(dtype_, row_);
  if (head_ == 0) {
    std::memcpy(out.data(), bytes_.data() + stored_bytes(dtype_, first), out.size());
    return;
  }
  for (size_t done = 0; done < out.size(); done += row_bytes)
    std::memcpy(
        out.data() + done,
        bytes_.data() + stored_bytes(dtype_, stored_row(first / row_ + static_cast<int64_t>(done / row_bytes)) * row_),
        row_bytes);
}

}  // namespace danqing
