// Small helpers shared by the files of nn; not for other layers.
#pragma once
#include <ggml.h>

#include "device/graph.h"

namespace danqing::nn {

/// Axis in front-counted rank-4 torch order (3 = the last) as ggml's dimension.
inline int ggml_dim(int axis) { return 3 - axis; }
/// `x` itself, or a contiguous copy.
inline ggml_tensor* contiguous(Graph& g, ggml_tensor* x) { return ggml_is_contiguous(x) ? x : ggml_cont(g.ctx(), x); }
/// [C] seen as [C, 1, 1], to go along the channels of [B, C, H, W].
inline ggml_tensor* per_channel(Graph& g, ggml_tensor* v) { return ggml_reshape_4d(g.ctx(), v, 1, 1, ggml_nelements(v), 1); }
/// a b^T in f32 accumulation where the backend has a choice.
inline ggml_tensor* matmul(Graph& g, ggml_tensor* a, ggml_tensor* b) {
  ggml_tensor* y = ggml_mul_mat(g.ctx(), a, b);
  ggml_mul_mat_set_prec(y, GGML_PREC_F32);
  return y;
}

}  // namespace danqing::nn
