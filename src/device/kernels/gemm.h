// C = A B^T for anything that can hand out rows: activations, stored weights of any dtype, the pixels under a
// convolution kernel. Rows are packed into strips (micro.h), products run tile by tile, tasks are spread over a Pool.
// The split into tiles depends on the shape alone, so the result does not depend on the number of threads.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>

#include "device/kernels/micro.h"
#include "device/kernels/pool.h"

namespace danqing::kernels {

/// kn values of a row from k0 on: a pointer into memory that holds them as f32, or `buffer` (room for kn) filled with
/// them. k0 is a multiple of 256. Called from any thread.
using RowSource = std::function<const float*(int64_t row, int64_t k0, int64_t kn, float* buffer)>;
/// The same for rows that lie in memory as bf16.
using Bf16Source = std::function<const uint16_t*(int64_t row, int64_t k0, int64_t kn)>;
/// What happens to finished values of row m, columns n to n + count - 1, while they are in the cache. May change them.
using Finish = std::function<void(int64_t m, int64_t n, int64_t count, float* values)>;

struct Gemm {
  int64_t m = 0, n = 0, k = 0;
  Format format = Format::f32;
  RowSource a, b;
  Bf16Source b_bf16;  ///< optional: B once more, which saves i16 the way through f32
  /// B holds values with 8 significant bits (bf16, quantised): scales that are powers of two keep them exact.
  bool b_is_coarse = false;
  /// Pack B once before everything else (small B, many rows of A) and not once for every task.
  bool keep_b = false;
  /// i8: the scale of each row, max |row| / 127.
  const float* a_scale = nullptr;
  const float* b_scale = nullptr;
  float* c = nullptr;
  int64_t ldc = 0;
  Finish finish;
};

/// Whether the processor has tiles for this format.
bool computes(Format format);
/// The format for weights with 8 or 11 significant bits: i16 where it is much faster than f32 (measured once), else
/// f32.
Format preferred_format();

/// Bytes of scratch memory that multiply() needs, aligned to 64, for a pool of `threads`.
size_t gemm_scratch(const Gemm& g, int threads);
void multiply(Pool& pool, const Gemm& g, std::byte* scratch);

}  // namespace danqing::kernels
