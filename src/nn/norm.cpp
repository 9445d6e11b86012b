#include "device/kernels/group_norm.h"
#include "nn/detail.h"
#include "nn/nn.h"

namespace danqing::nn {

ggml_tensor* rms_norm(Graph& g, ggml_tensor* x, ggml_tensor* weight, float eps) {
  if (own_kernels(g)) return kernels::rms_norm(g, x, weight, eps);
  ggml_tensor* y = ggml_rms_norm(g.ctx(), contiguous(g, x), eps);
  return weight ? ggml_mul(g.ctx(), y, weight) : y;
}

ggml_tensor* layer_norm(Graph& g, ggml_tensor* x, ggml_tensor* weight, ggml_tensor* bias, float eps) {
  if (own_kernels(g)) return kernels::layer_norm(g, x, weight, bias, eps);
  ggml_tensor* y = ggml_norm(g.ctx(), contiguous(g, x), eps);
  if (weight) y = ggml_mul(g.ctx(), y, weight);
  return bias ? ggml_add(g.ctx(), y, bias) : y;
}

ggml_tensor* group_norm(Graph& g, ggml_tensor* x, ggml_tensor* weight, ggml_tensor* bias, int groups, float eps) {
  if (own_kernels(g)) return kernels::group_norm(g, x, weight, bias, groups, eps);
  ggml_tensor* y = ggml_group_norm(g.ctx(), contiguous(g, x), groups, eps);
  if (weight) y = ggml_mul(g.ctx(), y, per_channel(g, weight));
  return bias ? ggml_add(g.ctx(), y, per_channel(g, bias)) : y;
}

ggml_tensor* modulate(Graph& g, ggml_tensor* x, ggml_tensor* scale, ggml_tensor* shift) {
  if (own_kernels(g)) return kernels::modulate(g, x, scale, shift);
  ggml_tensor* y = ggml_mul(g.ctx(), contiguous(g, x), ggml_scale_bias(g.ctx(), contiguous(g, scale), 1.0f, 1.0f));
  return shift ? ggml_add(g.ctx(), y, contiguous(g, shift)) : y;
}

}  // namespace danqing::nn
