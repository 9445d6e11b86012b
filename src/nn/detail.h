// Small helpers shared by the files of nn; not for other layers.
#pragma once
#include <ggml.h>

#include "device/graph.h"
#include "device/kernels/channels_last.h"
#include "device/kernels/rowwise.h"

namespace danqing::nn {

/// Axis in front-counted rank-4 torch order (3 = the last) as ggml's dimension.
inline int ggml_dim(int axis) { return 3 - axis; }
/// Whether our CPU kernels compute this graph; else plain ggml does.
inline bool own_kernels(const Graph& g) { return g.device().pool() != nullptr; }
/// `x` itself, or a contiguous copy.
inline ggml_tensor* contiguous(Graph& g, ggml_tensor* x) {
  if (ggml_is_contiguous(x)) return x;
  return own_kernels(g) ? kernels::plain(g, x) : ggml_cont(g.ctx(), x);
}
/// [C] seen as [C, 1, 1], to go along the channels of [B, C, H, W].
inline ggml_tensor* per_channel(Graph& g, ggml_tensor* v) {
  return ggml_reshape_4d(g.ctx(), v, 1, 1, ggml_nelements(v), 1);
}
/// a b^T in f32 accumulation where the backend has a choice.
inline ggml_tensor* matmul(Graph& g, ggml_tensor* a, ggml_tensor* b) {
  ggml_tensor* y = ggml_mul_mat(g.ctx(), a, b);
  ggml_mul_mat_set_prec(y, GGML_PREC_F32);
  return y;
}

/// The attention scores that may exist at one time where they are written out to memory: 256 MiB.
inline constexpr int64_t kScoreBytes = int64_t{256} << 20;
/// Attention by two products and a softmax, as many queries at a time as `score_bytes` holds (at least one).
/// q [B, Hq, Tq, D], k and v [B, Hkv, Tk, D], in any memory order with the last axis contiguous -> [B, Tq, Hq, D].
ggml_tensor* attention_written_out(Graph& g, ggml_tensor* q, ggml_tensor* k, ggml_tensor* v, ggml_tensor* mask,
                                   float scale, int64_t score_bytes);

}  // namespace danqing::nn
