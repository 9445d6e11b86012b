#include "device/kernels/linear.h"

#include "nn/detail.h"
#include "nn/nn.h"

namespace danqing::nn {

ggml_tensor* linear(Graph& g, ggml_tensor* x, ggml_tensor* weight, ggml_tensor* bias) {
  x = contiguous(g, x);
  if (own_kernels(g) && kernels::multiplies(weight)) return kernels::linear(g, x, contiguous(g, weight), bias);
  const int64_t rows = ggml_nrows(x), n1 = x->ne[1], n2 = x->ne[2], n3 = x->ne[3];
  if (n2 * n3 != 1) x = ggml_reshape_2d(g.ctx(), x, x->ne[0], rows);  // one product, not one per batch item
  ggml_tensor* y = matmul(g, weight, x);
  if (bias) y = ggml_add(g.ctx(), y, bias);
  return n2 * n3 != 1 ? ggml_reshape_4d(g.ctx(), y, y->ne[0], n1, n2, n3) : y;
}

ggml_tensor* embedding(Graph& g, ggml_tensor* ids, ggml_tensor* table) { return ggml_get_rows(g.ctx(), table, ids); }

ggml_tensor* store_rows(Graph& g, ggml_tensor* cache, ggml_tensor* rows, ggml_tensor* ids) {
  ggml_tensor* after = ggml_set_rows(g.ctx(), cache, contiguous(g, rows), ids);
  g.require(after);
  return after;
}

}  // namespace danqing::nn
