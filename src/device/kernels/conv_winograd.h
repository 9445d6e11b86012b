// Convolutions of 3x3 (stride 1) and 1x1 over pictures [B, H, W, C], with the group norm and SiLU before them, nearest
// upsampling by two before them, and the bias and the addition after them, in one pass over memory.
//
// 3x3: F(2x2, 3x3) takes 16 products for 4 results where the plain sum takes 36, and 9 where the picture is doubled
// first (then a part of the transformed pixels is zero). A band of the picture is normalised into a buffer, tasks turn
// its tiles into 16 matrices, multiply each with the kernel's and turn the results back. Since a band is in the buffer
// before its results are written, y may be x.
#pragma once
#include <cstddef>

#include "device/kernels/conv_inner.h"
#include "device/kernels/pool.h"

namespace danqing::kernels {

struct ConvShape {
  int64_t batch = 1, c = 0, o = 0, h = 0, w = 0;  ///< of the picture read
  int64_t out_h = 0, out_w = 0;
  int64_t pad_left = 0, pad_top = 0;
  bool doubled = false;               ///< the convolution sees each pixel as 2x2
  int64_t cut_left = 0, cut_top = 0;  ///< results (0 or 1) left out at the beginning; only where doubled
  bool pointwise = false;             ///< 1x1 instead of 3x3
};
struct ConvData {
  const float *x, *kernel;          ///< kernel [O][C][3][3] or [O][C]
  const float* bias = nullptr;      ///< [O]
  const float* norm = nullptr;      ///< [B][3][C]: mean, factor, shift
  bool silu = false;                ///< after the norm
  const float* residual = nullptr;  ///< as y
  float* y = nullptr;               ///< may be x (equal sizes, not doubled) or residual
};

size_t conv_scratch(const ConvShape& s, int threads);
/// Does not depend on the number of threads.
void convolve(Pool& pool, const ConvShape& s, const ConvData& d, std::byte* scratch);

}  // namespace danqing::kernels
