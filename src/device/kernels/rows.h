// Work on single rows of values: widening stored weights to f32, packing rows into strips for the tiles of micro.h,
// products with one row. Vectorised for the processor it runs on.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace danqing::kernels {

/// Whether expand() knows this dtype.
bool expands(DType type);
/// `n` values from `src` on, stored as `type`, as f32. For types with blocks `src` begins a block and n is whole
/// blocks.
void expand(DType type, const std::byte* src, int64_t n, float* out);

/// Places up to four rows of k 32-bit units as columns `first` to first + 3 of a strip of `group`: out[j * group +
/// first + i] = row i, unit j. The columns of rows that are not there become zero. A unit is one f32, two int16 or four
/// int8.
void interleave(const void* const* rows, int count, int64_t k, int64_t group, int64_t first, void* out);

/// The int16 format: for each 128 values (the last ones padded with zeros) one scale and |q| <= 4095 with x ~ q *
/// scale. Powers of two as scales keep bf16 values exact down to 1/16 of the largest. A value that is not finite makes
/// the scale NaN. q has room for k rounded up to 128.
void quantize_i16(const float* x, int64_t k, bool power_of_two, int16_t* q, float* scales);
/// The same of bf16 values, with powers of two as scales.
void quantize_bf16(const uint16_t* x, int64_t k, int16_t* q, float* scales);
/// The int8 format: one scale for the whole row (max |x| / 127 given by the caller as `scale`), zero point `zero`.
/// Returns the sum of the integers without the zero point.
int32_t quantize_i8(const float* x, int64_t k, float scale, int zero, uint8_t* q);
/// Sums of u8 x s8 products as values: (sums[j] - kZeroI8 * b_sums[j]) * a_scale * b_scale[j], b_sums the sums of B's
/// columns. y must not overlap the rest.
void scale_i8(const int32_t* sums, int64_t n, float a_scale, const float* b_scale, const int32_t* b_sums, float* y);
/// Largest magnitude of a row; NaN if a value is not finite.
float absmax(const float* x, int64_t k);

/// y[m] = sum over k of x[m * ldx + k] * w[k], w stored as `type`, for `rows` rows (1 to 4) of x.
void dot(DType type, const std::byte* w, const float* x, int64_t ldx, int rows, int64_t k, float* y);

/// y[c] = sum over k of x[k] * w[c][k] for four rows of weights, `row_bytes` apart: x is read once for all. For the
/// types that dots_columns().
bool dots_columns(DType type);
void dot_columns(DType type, const std::byte* w, size_t row_bytes, const float* x, int64_t k, float* y);

}  // namespace danqing::kernels
