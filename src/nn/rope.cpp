#include "nn/detail.h"
#include "nn/nn.h"

namespace danqing::nn {
namespace {

/// [..., D] with the partners of each pair exchanged; the first of each pair (of the result) negated if `negate`.
ggml_tensor* exchange(Graph& g, ggml_tensor* x, RopeStyle style, bool negate) {
  const int64_t d = x->ne[0], n1 = x->ne[1], n2 = x->ne[2], n3 = x->ne[3];
  ggml_tensor* first = nullptr;
  ggml_tensor* second = nullptr;
  if (style == RopeStyle::half) {
    first = narrow(g, x, 3, d / 2, d / 2);
    second = narrow(g, x, 3, 0, d / 2);
  } else {
    ggml_tensor* pairs = ggml_reshape_4d(g.ctx(), x, 2, d / 2, n1 * n2, n3);
    first = narrow(g, pairs, 3, 1, 1);
    second = narrow(g, pairs, 3, 0, 1);
  }
  if (negate) first = ggml_neg(g.ctx(), ggml_cont(g.ctx(), first));
  return ggml_reshape_4d(g.ctx(), ggml_concat(g.ctx(), first, second, 0), d, n1, n2, n3);
}

/// The sign of "-x2 sin" put on the small sine table instead of on x: exact, and one pass less over x.
/// sin [.., D] -> its first of each pair negated, in place (not exchanged).
ggml_tensor* signed_sine(Graph& g, ggml_tensor* sin, RopeStyle style) {
  return exchange(g, exchange(g, sin, style, false), style, true);
}

}  // namespace

ggml_tensor* rope(Graph& g, ggml_tensor* x, ggml_tensor* cos, ggml_tensor* sin, RopeStyle style) {
  if (own_kernels(g))
    return kernels::rope(g, x, contiguous(g, cos), contiguous(g, sin), style == RopeStyle::adjacent);
  x = contiguous(g, x);
  ggml_tensor* partners = exchange(g, x, style, false);
  ggml_tensor* s = signed_sine(g, contiguous(g, sin), style);
  return ggml_add(g.ctx(), ggml_mul(g.ctx(), x, contiguous(g, cos)), ggml_mul(g.ctx(), partners, s));
}

}  // namespace danqing::nn
