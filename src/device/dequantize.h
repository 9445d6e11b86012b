// Stored values of any dtype to f32, checked (kernels/rows.h does blocks); and f32 to any dtype, blocks by ggml.
#pragma once
#include <span>

#include "base/dtype.h"
#include "danqing/result.h"

namespace danqing {

/// `stored` holds whole blocks; out.size() elements. Covers plain types too (checkpoint/decode_f32).
Result<void> dequantize(DType dtype, std::span<const std::byte> stored, std::span<float> out);
/// Whether quantize() makes this dtype: f32, f16, bf16, f8 and ggml's types that need no importance matrix.
bool can_quantize(DType dtype);
/// Rows of `row` elements to plain or quantised bytes; error if the row is no multiple of the block.
/// Values that are quantised must be finite: ggml aborts on some others.
Result<void> quantize(DType dtype, std::span<const float> values, int64_t row, std::span<std::byte> out);

}  // namespace danqing
