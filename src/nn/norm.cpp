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

ggml_tensor* channel_statistics(Graph& g, ggml_tensor* x) {
  if (own_kernels(g)) return kernels::channel_statistics(g, x);
  x = contiguous(g, x);
  const int64_t c = x->ne[2];
  const float pixels = static_cast<float>(x->ne[0] * x->ne[1]);
  // Rows first, then their sums: no long sum where a backend adds in f32.
  const auto total = [&](ggml_tensor* t) {
    ggml_tensor* rows = ggml_sum_rows(g.ctx(), t);
    return ggml_sum_rows(g.ctx(), ggml_reshape_2d(g.ctx(), rows, t->ne[1], c));
  };
  ggml_tensor* mean = ggml_scale(g.ctx(), total(x), 1.0f / pixels);
  ggml_tensor* squares = total(ggml_sqr(g.ctx(), ggml_sub(g.ctx(), x, per_channel(g, mean))));
  return ggml_concat(g.ctx(), ggml_reshape_2d(g.ctx(), mean, c, 1), ggml_reshape_2d(g.ctx(), squares, c, 1), 1);
}

ggml_tensor* normalise(Graph& g, ggml_tensor* x, ggml_tensor* statistics, ggml_tensor* weight, ggml_tensor* bias) {
  if (own_kernels(g)) return kernels::normalise(g, x, statistics, weight, bias);
  const int64_t c = statistics->ne[0];
  const auto part = [&](size_t i) { return ggml_view_1d(g.ctx(), statistics, c, i * statistics->nb[1]); };
  ggml_tensor* factor = ggml_mul(g.ctx(), part(1), ggml_reshape_1d(g.ctx(), weight, c));
  ggml_tensor* y = ggml_sub(g.ctx(), contiguous(g, x), per_channel(g, part(0)));
  y = ggml_mul(g.ctx(), y, per_channel(g, factor));
  return ggml_add(g.ctx(), y, per_channel(g, bias));
}

ggml_tensor* modulate(Graph& g, ggml_tensor* x, ggml_tensor* scale, ggml_tensor* shift) {
  if (own_kernels(g)) return kernels::modulate(g, x, scale, shift);
  ggml_tensor* y = ggml_mul(g.ctx(), contiguous(g, x), ggml_scale_bias(g.ctx(), contiguous(g, scale), 1.0f, 1.0f));
  return shift ? ggml_add(g.ctx(), y, contiguous(g, shift)) : y;
}

}  // namespace danqing::nn
