#include "device/kernels/conv.h"

#include <algorithm>

#include "nn/detail.h"
#include "nn/nn.h"

namespace danqing::nn {
namespace {

/// A 1x1 convolution is a product over the channels: [B, C, H, W] -> [B, HW, C] -> [B, HW, O] -> [B, O, H, W].
ggml_tensor* pointwise(Graph& g, ggml_tensor* x, ggml_tensor* kernel) {
  const int64_t w = x->ne[0], h = x->ne[1], c = x->ne[2], b = x->ne[3], o = kernel->ne[3];
  ggml_tensor* pixels = ggml_reshape_3d(g.ctx(), contiguous(g, x), w * h, c, b);
  pixels = ggml_cont(g.ctx(), ggml_transpose(g.ctx(), pixels));
  ggml_tensor* y = matmul(g, ggml_reshape_2d(g.ctx(), kernel, c, o), ggml_reshape_2d(g.ctx(), pixels, c, w * h * b));
  y = ggml_reshape_3d(g.ctx(), y, o, w * h, b);
  return ggml_reshape_4d(g.ctx(), ggml_cont(g.ctx(), ggml_transpose(g.ctx(), y)), w, h, o, b);
}

}  // namespace

ggml_tensor* conv2d(Graph& g, ggml_tensor* x, ggml_tensor* kernel, ggml_tensor* bias, const Conv2dOptions& o) {
  if (own_kernels(g) && kernel->type == GGML_TYPE_F32)
    return kernels::conv2d(g, x, contiguous(g, kernel), bias,
                           {o.stride, o.pad_left, o.pad_right, o.pad_top, o.pad_bottom}, kernels::Format::f32);
  const auto left_out = [](int pad) { return std::max(0, -pad); };
  if (std::min({o.pad_left, o.pad_right, o.pad_top, o.pad_bottom}) < 0) {
    Conv2dOptions rest = o;
    for (int* pad : {&rest.pad_left, &rest.pad_right, &rest.pad_top, &rest.pad_bottom}) *pad = std::max(0, *pad);
    x = crop(g, x, left_out(o.pad_top), left_out(o.pad_left), x->ne[1] - left_out(o.pad_top) - left_out(o.pad_bottom),
             x->ne[0] - left_out(o.pad_left) - left_out(o.pad_right));
    return conv2d(g, x, kernel, bias, rest);
  }
  x = contiguous(g, x);
  const bool symmetric = o.pad_left == o.pad_right && o.pad_top == o.pad_bottom;
  const bool padded = o.pad_left || o.pad_right || o.pad_top || o.pad_bottom;
  ggml_tensor* y = nullptr;
  if (kernel->ne[0] == 1 && kernel->ne[1] == 1 && o.stride == 1 && !padded) {
    y = pointwise(g, x, kernel);
  } else {
    if (!symmetric) x = ggml_pad_ext(g.ctx(), x, o.pad_left, o.pad_right, o.pad_top, o.pad_bottom, 0, 0, 0, 0);
    // im2col in pieces of a fixed scratch buffer, never of the whole picture.
    y = ggml_conv_2d_direct(g.ctx(), kernel, x, o.stride, o.stride, symmetric ? o.pad_left : 0,
                            symmetric ? o.pad_top : 0, 1, 1);
  }
  return bias ? ggml_add(g.ctx(), y, per_channel(g, bias)) : y;
}

ggml_tensor* crop(Graph& g, ggml_tensor* x, int64_t top, int64_t left, int64_t h, int64_t w) {
  if (top == 0 && left == 0 && x->ne[1] == h && x->ne[0] == w) return x;
  if (own_kernels(g)) return kernels::crop_picture(g, x, top, left, h, w);
  return contiguous(g, narrow(g, narrow(g, x, 2, top, h), 3, left, w));
}

ggml_tensor* from_channels_last(Graph& g, ggml_tensor* x) {
  if (own_kernels(g)) return kernels::channels_last_view(g, x);
  // Where sizes are 1, a permuted view counts as contiguous and keeps strides that operations refuse: reshaped anew.
  return reshape(g, permute(g, x, {0, 3, 1, 2}), {x->ne[3], x->ne[0], x->ne[2], x->ne[1]});
}

ggml_tensor* to_channels_last(Graph& g, ggml_tensor* x) {
  if (own_kernels(g)) return kernels::channels_last(g, x);
  return reshape(g, permute(g, x, {0, 2, 3, 1}), {x->ne[3], x->ne[1], x->ne[0], x->ne[2]});
}

ggml_tensor* upsample_nearest2(Graph& g, ggml_tensor* x) {
  if (own_kernels(g)) return kernels::upsample2(g, x);
  return ggml_upscale(g.ctx(), contiguous(g, x), 2, GGML_SCALE_MODE_NEAREST);
}

}  // namespace danqing::nn
