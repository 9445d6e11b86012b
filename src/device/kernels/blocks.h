// Weights in the block formats of GGUF: their values as f32, and products with rows of f32 where they lie.
#pragma once
#include <cstdint>
#include <vector>

#include "base/dtype.h"

namespace danqing::kernels {

/// Of one dtype and one instruction set. Null where there is none.
struct BlockKernels {
  /// `count` blocks as f32, bit for bit as ggml decodes them.
  void (*expand)(const uint8_t* blocks, int64_t count, float* out) = nullptr;
  /// y[m] = sum over k of x[m * ldx + k] * w[k], w in `count` blocks, for `rows` rows (1 to 4) of x.
  void (*dot)(const uint8_t* blocks, int64_t count, const float* x, int64_t ldx, int rows, float* y) = nullptr;
};

/// Of the processor this runs on; null members where ggml's own decoder serves.
const BlockKernels& block_kernels(DType type);

/// For tests: every instruction set that has kernels and that this processor can run, best first. Each table has
/// kDTypeCount members.
struct BlockKernelTable {
  const char* name;  ///< "AVX3", "AVX2"
  const BlockKernels* kernels;
};
const std::vector<BlockKernelTable>& all_block_kernels();

}  // namespace danqing::kernels
