// Pictures with their channels side by side in memory. A picture of torch shape [B, C, H, W] (ggml sizes [W, H, C, B])
// that our convolutions and group norms return is a view of a contiguous tensor of ggml sizes [C, W, H, B]: to the
// caller the shape is the usual one, and the next of our operations finds the memory in the order it likes.
#pragma once
#include "device/kernels/op.h"

namespace danqing::kernels {

/// The contiguous tensor [C, W, H, B] of which `x` [W, H, C, B] is the view; null if x is anything else.
ggml_tensor* base(const ggml_tensor* x);
/// [C, W, H, B] seen as [W, H, C, B].
ggml_tensor* channels_last_view(Graph& g, ggml_tensor* base);
/// base(x), or x turned over.
ggml_tensor* channels_last(Graph& g, ggml_tensor* x);
/// x in plain order, contiguous: a view like the above (or a matrix seen transposed) is turned over, anything else as
/// ggml_cont does it. Returns x itself where its memory is in plain order already.
ggml_tensor* plain(Graph& g, ggml_tensor* x);
/// x with the ggml sizes `ne` where no value has to move: [W, H, C, B] as [W*H, C, ...] and the reverse keep their
/// channels side by side. null: not such a case, use plain() and ggml_reshape.
ggml_tensor* reshaped(Graph& g, ggml_tensor* x, const std::array<int64_t, 4>& ne);

/// Operations on views as above; null if (one of) the arguments are anything else. Each looks at what made its argument
/// and joins it where that saves a pass over memory: SiLU joins the group norm before it, an addition the convolution.
ggml_tensor* silu_picture(Graph& g, ggml_tensor* x);
ggml_tensor* add_pictures(Graph& g, ggml_tensor* a, ggml_tensor* b);

/// Rows `top` to top + h - 1 and columns `left` to left + w - 1 of x [B, C, H, W] in any order; a view as above.
ggml_tensor* crop_picture(Graph& g, ggml_tensor* x, int64_t top, int64_t left, int64_t h, int64_t w);

/// Lets operations of this folder write into the memory of an input that nothing reads after them. To be called once,
/// when the graph is complete and before it gets its memory.
void reuse_inputs(ggml_cgraph* graph);

}  // namespace danqing::kernels
