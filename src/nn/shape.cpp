#include <algorithm>
#include <cassert>

#include "nn/detail.h"
#include "nn/nn.h"

namespace danqing::nn {

ggml_tensor* reshape(Graph& g, ggml_tensor* x, const Shape& shape) {
  assert(shape.size() <= 4 && element_count(shape) == ggml_nelements(x));
  int64_t ne[4] = {1, 1, 1, 1};
  std::reverse_copy(shape.begin(), shape.end(), ne);
  if (own_kernels(g))
    if (ggml_tensor* y = kernels::reshaped(g, x, {ne[0], ne[1], ne[2], ne[3]})) return y;
  return ggml_reshape_4d(g.ctx(), contiguous(g, x), ne[0], ne[1], ne[2], ne[3]);
}

ggml_tensor* permute(Graph& g, ggml_tensor* x, const std::vector<int>& order) {
  const int rank = static_cast<int>(order.size());
  assert(rank <= 4 && ggml_n_dims(x) <= rank);
  int to[4] = {0, 1, 2, 3};  // to[d]: where ggml's dimension d goes
  for (int i = 0; i < rank; ++i) to[rank - 1 - order[static_cast<size_t>(i)]] = rank - 1 - i;
  return contiguous(g, ggml_permute(g.ctx(), x, to[0], to[1], to[2], to[3]));
}

ggml_tensor* concat(Graph& g, ggml_tensor* a, ggml_tensor* b, int axis) {
  if (own_kernels(g) && a->type == GGML_TYPE_F32) return kernels::concat(g, a, b, ggml_dim(axis));
  return ggml_concat(g.ctx(), a, b, ggml_dim(axis));
}

ggml_tensor* narrow(Graph& g, ggml_tensor* x, int axis, int64_t start, int64_t length) {
  if (x->nb[0] != ggml_type_size(x->type)) x = contiguous(g, x);  // ggml_view takes the first axis as dense
  const int d = ggml_dim(axis);
  assert(start >= 0 && length > 0 && start + length <= x->ne[d]);
  int64_t ne[4] = {x->ne[0], x->ne[1], x->ne[2], x->ne[3]};
  ne[d] = length;
  return ggml_view_4d(g.ctx(), x, ne[0], ne[1], ne[2], ne[3], x->nb[1], x->nb[2], x->nb[3],
                      static_cast<size_t>(start) * x->nb[d]);
}

}  // namespace danqing::nn
