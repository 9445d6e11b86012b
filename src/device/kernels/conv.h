// Convolutions and upsampling of pictures with their channels side by side (channels_last.h).
#pragma once
#include "device/kernels/micro.h"
#include "device/kernels/op.h"

namespace danqing::kernels {

struct Note;

/// Stride and zeros around the picture; less than zero: that many rows or columns are left out.
struct Window {
  int stride = 1, left = 0, right = 0, top = 0, bottom = 0;
};
/// x [B, C, H, W] in any order, kernel [O, C, kh, kw] f32 contiguous, bias [O] or null -> a view [B, O, H', W']. Joins
/// a group norm, its SiLU and an upsampling before it. `format`: in which numbers kernels other than 3x3 and 1x1
/// multiply.
ggml_tensor* conv2d(Graph& g, ggml_tensor* x, ggml_tensor* kernel, ggml_tensor* bias, const Window& window,
                    Format format);
/// Nearest neighbour, H and W times two; a view.
ggml_tensor* upsample2(Graph& g, ggml_tensor* x);

/// A convolution that adds the other of two contiguous pictures to its result, where one of them is a convolution; else
/// null.
ggml_tensor* add_to_conv(Graph& g, ggml_tensor* a, ggml_tensor* b);
/// x [C, W, H, B] normalised by `statistics` (group_norm.h); `n` says whether SiLU follows.
ggml_tensor* apply_norm(Graph& g, ggml_tensor* x, ggml_tensor* statistics, const Note& n);

}  // namespace danqing::kernels
