// The only graph vocabulary that models use. Every function appends operations to `g` and returns the new tensor.
// Shapes below are torch order; ggml's `ne` is the reverse. All activations are f32; weights keep their dtype.
// Nothing here depends on which device it is for the caller: a function chooses by g.device().
#pragma once
#include <ggml.h>

#include <optional>
#include <string_view>

#include "device/graph.h"
#include "device/weights.h"

namespace danqing::nn {

/// x [..., in] -> [..., out]: x W^T (+ b). W [out, in].
ggml_tensor* linear(Graph& g, ggml_tensor* x, ggml_tensor* weight, ggml_tensor* bias = nullptr);
/// ids [n] (i32, each below the number of rows: the caller checks, a kernel aborts) -> [n, width]
ggml_tensor* embedding(Graph& g, ggml_tensor* ids, ggml_tensor* table);
/// Writes rows [n, width] into the persistent cache [capacity, width] (see device/state.h) at positions ids [n] (i32,
/// below capacity). Returns the cache after the write: what reads from the returned tensor sees the new rows. The write
/// happens in every run, whether the result is used or not.
ggml_tensor* store_rows(Graph& g, ggml_tensor* cache, ggml_tensor* rows, ggml_tensor* ids);

/// x / sqrt(mean(x^2) + eps) over the last axis, times weight if given. (Zhang & Sennrich 2019)
ggml_tensor* rms_norm(Graph& g, ggml_tensor* x, ggml_tensor* weight, float eps);
/// (x - mean) / sqrt(var + eps) over the last axis; weight and bias may be null. (Ba et al. 2016)
ggml_tensor* layer_norm(Graph& g, ggml_tensor* x, ggml_tensor* weight, ggml_tensor* bias, float eps);
/// x [B, C, H, W], statistics over groups of channels and space. (Wu & He 2018)
ggml_tensor* group_norm(Graph& g, ggml_tensor* x, ggml_tensor* weight, ggml_tensor* bias, int groups, float eps);
/// What group_norm needs of one tile of a picture: mean and sum of squared deviations of every channel of x [1, C, H,
/// W]
/// -> [2, C].
ggml_tensor* channel_statistics(Graph& g, ggml_tensor* x);
/// group_norm of a tile by the statistics of the whole picture: [2, C] holding mean and 1 / sqrt(var + eps) of every
/// channel's group.
ggml_tensor* normalise(Graph& g, ggml_tensor* x, ggml_tensor* statistics, ggml_tensor* weight, ggml_tensor* bias);
/// x * (1 + scale) + shift; scale, shift [B, 1, C] or broadcastable; shift may be null. (Peebles & Xie 2023, adaLN)
ggml_tensor* modulate(Graph& g, ggml_tensor* x, ggml_tensor* scale, ggml_tensor* shift);

ggml_tensor* silu(Graph& g, ggml_tensor* x);
ggml_tensor* gelu_erf(Graph& g, ggml_tensor* x);  ///< exact GELU, x/2 (1 + erf(x/sqrt 2))
ggml_tensor* tanh(Graph& g, ggml_tensor* x);
ggml_tensor* add(Graph& g, ggml_tensor* a, ggml_tensor* b);  ///< b broadcasts
ggml_tensor* mul(Graph& g, ggml_tensor* a, ggml_tensor* b);  ///< b broadcasts
ggml_tensor* scale(Graph& g, ggml_tensor* a, float s);
/// Gated MLPs: act(gate) * up.
ggml_tensor* swiglu(Graph& g, ggml_tensor* gate, ggml_tensor* up);
ggml_tensor* geglu_erf(Graph& g, ggml_tensor* gate, ggml_tensor* up);

/// Rotary embedding from tables computed on the host (one way for all models, torch-exact angles).
/// x [B, T, heads, D]; cos, sin [B or 1, T, 1, D] already expanded to the full head size.
enum class RopeStyle {
  half,      ///< element i pairs with i + D/2: out = x*cos + concat(-x2, x1)*sin
  adjacent,  ///< element 2i pairs with 2i+1:   out = x*cos + interleave(-x[2i+1], x[2i])*sin
};
ggml_tensor* rope(Graph& g, ggml_tensor* x, ggml_tensor* cos, ggml_tensor* sin, RopeStyle style);

/// softmax(q k^T * scale + mask) v. q [B, Tq, Hq, D], k and v [B, Tk, Hkv, D], Hq a multiple of Hkv (query head h uses
/// key head h / (Hq/Hkv)). mask: null, or [B or 1, 1, Tq or 1, Tk] f32 holding 0 and -inf. Returns [B, Tq, Hq*D].
/// f32 softmax. Memory stays bounded for long sequences (never all heads' Tq x Tk at once past a stated limit).
ggml_tensor* attention(Graph& g, ggml_tensor* q, ggml_tensor* k, ggml_tensor* v, ggml_tensor* mask, float scale);

struct Conv2dOptions {
  int stride = 1;
  int pad_left = 0, pad_right = 0, pad_top = 0, pad_bottom = 0;  ///< zeros; less than 0: rows, columns left out
  static Conv2dOptions same(int kernel) {
    const int p = kernel / 2;
    return {1, p, p, p, p};
  }
};
/// x [B, C, H, W], kernel [O, C, kh, kw], bias [O] or null -> [B, O, H', W'].
ggml_tensor* conv2d(Graph& g, ggml_tensor* x, ggml_tensor* kernel, ggml_tensor* bias, const Conv2dOptions& o);
/// Nearest neighbour, H and W times two.
ggml_tensor* upsample_nearest2(Graph& g, ggml_tensor* x);
/// x [B, C, H, W] -> its rows from `top` and columns from `left` on, [B, C, h, w].
ggml_tensor* crop(Graph& g, ggml_tensor* x, int64_t top, int64_t left, int64_t h, int64_t w);
/// Pictures as they lie between two graphs, channels side by side: [B, H, W, C] as [B, C, H, W], and back.
ggml_tensor* from_channels_last(Graph& g, ggml_tensor* x);
ggml_tensor* to_channels_last(Graph& g, ggml_tensor* x);

// Shape work. Sizes in torch order.
ggml_tensor* reshape(Graph& g, ggml_tensor* x, const Shape& shape);  ///< made contiguous if it is not
ggml_tensor* permute(Graph& g, ggml_tensor* x,
                     const std::vector<int>& order);  ///< as torch.permute, any rank <= 4, contiguous result
ggml_tensor* concat(Graph& g, ggml_tensor* a, ggml_tensor* b,
                    int axis);  ///< axis in torch order of the rank given by `rank`
ggml_tensor* narrow(Graph& g, ggml_tensor* x, int axis, int64_t start, int64_t length);  ///< view, as torch.narrow
/// Torch rank is not stored in ggml tensors: axis arguments count from the front of a rank-4 shape [n3, n2, n1, n0].
/// So the last axis is 3, the last but one 2, and so on, whatever the tensor's own rank.

}  // namespace danqing::nn
