#include "device/kernels/linear.h"
#include "nn/detail.h"
#include "nn/nn.h"

namespace danqing::nn {

ggml_tensor* silu(Graph& g, ggml_tensor* x) {
  if (own_kernels(g)) {
    ggml_tensor* picture = kernels::silu_picture(g, x);
    return picture ? picture : kernels::unary(g, x, kernels::Unary::silu);
  }
  return ggml_silu(g.ctx(), contiguous(g, x));
}
ggml_tensor* gelu_erf(Graph& g, ggml_tensor* x) {
  if (own_kernels(g)) return kernels::unary(g, x, kernels::Unary::gelu_erf);
  return ggml_gelu_erf(g.ctx(), contiguous(g, x));
}
ggml_tensor* tanh(Graph& g, ggml_tensor* x) {
  if (own_kernels(g)) return kernels::unary(g, x, kernels::Unary::tanh);
  return ggml_tanh(g.ctx(), contiguous(g, x));
}
ggml_tensor* add(Graph& g, ggml_tensor* a, ggml_tensor* b) {
  if (own_kernels(g)) {
    ggml_tensor* picture = kernels::add_pictures(g, a, b);
    return picture ? picture : kernels::binary(g, a, b, kernels::Binary::add);
  }
  return ggml_add(g.ctx(), contiguous(g, a), contiguous(g, b));
}
ggml_tensor* mul(Graph& g, ggml_tensor* a, ggml_tensor* b) {
  if (own_kernels(g)) return kernels::binary(g, a, b, kernels::Binary::mul);
  return ggml_mul(g.ctx(), contiguous(g, a), contiguous(g, b));
}
ggml_tensor* scale(Graph& g, ggml_tensor* a, float s) {
  if (own_kernels(g)) return kernels::scale(g, a, s);
  return ggml_scale(g.ctx(), contiguous(g, a), s);
}

ggml_tensor* swiglu(Graph& g, ggml_tensor* gate, ggml_tensor* up) {
  if (own_kernels(g)) return kernels::gated(g, gate, up, kernels::Gate::silu);
  return ggml_swiglu_split(g.ctx(), contiguous(g, gate), contiguous(g, up));
}

ggml_tensor* geglu_erf(Graph& g, ggml_tensor* gate, ggml_tensor* up) {
  if (own_kernels(g)) return kernels::gated(g, gate, up, kernels::Gate::gelu_erf);
  return ggml_geglu_erf_split(g.ctx(), contiguous(g, gate), contiguous(g, up));
}

}  // namespace danqing::nn
