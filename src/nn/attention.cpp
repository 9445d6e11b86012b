#include "device/kernels/attention.h"

#include <algorithm>
#include <vector>

#include "nn/detail.h"
#include "nn/nn.h"

namespace danqing::nn {
namespace {

/// From this many queries on, the CPU's fused kernel works in tiles of f32; below, it would go row by row, and with one
/// query its result would depend on the number of threads.
constexpr int64_t kFusedQueries = 64;

ggml_tensor* fused(Graph& g, ggml_tensor* q, ggml_tensor* k, ggml_tensor* v, ggml_tensor* mask, float scale) {
  if (mask) mask = ggml_cast(g.ctx(), mask, GGML_TYPE_F16);  // 0 and -inf are exact in f16
  ggml_tensor* y = ggml_flash_attn_ext(g.ctx(), q, k, v, mask, scale, 0.0f, 0.0f);
  ggml_flash_attn_ext_set_prec(y, GGML_PREC_F32);
  return y;
}

/// The card's own kernel. Its fast paths want keys in multiples of 256 and a mask: keys are padded, and padding is
/// masked.
ggml_tensor* fused_on_card(Graph& g, ggml_tensor* q, ggml_tensor* k, ggml_tensor* v, ggml_tensor* mask, float scale) {
  constexpr int64_t kStep = 256;
  const int64_t keys = k->ne[1], queries = q->ne[1], padding = (kStep - keys % kStep) % kStep;
  const auto padded = [&](ggml_tensor* x) {
    x = ggml_cont(g.ctx(), x);
    return ggml_cast(g.ctx(), padding ? ggml_pad(g.ctx(), x, 0, static_cast<int>(padding), 0, 0) : x, GGML_TYPE_F16);
  };
  k = padded(k);
  v = padded(v);
  // 0 for keys, the lowest number of f16 for padding: -inf times 0 would be NaN.
  ggml_tensor* position = ggml_arange(g.ctx(), 0.0f, static_cast<float>(keys + padding), 1.0f);
  ggml_tensor* row = ggml_scale_bias(g.ctx(), position, 1.0f, 0.5f - static_cast<float>(keys));
  row = ggml_scale(g.ctx(), ggml_step(g.ctx(), row), -65504.0f);
  ggml_tensor* all = nullptr;
  if (mask) {
    if (padding) mask = ggml_pad(g.ctx(), mask, static_cast<int>(padding), 0, 0, 0);
    all = ggml_add(g.ctx(), mask, row);
  } else {
    all = ggml_repeat_4d(g.ctx(), row, keys + padding, queries, 1, 1);
  }
  ggml_tensor* y = ggml_flash_attn_ext(g.ctx(), q, k, v, ggml_cast(g.ctx(), all, GGML_TYPE_F16), scale, 0.0f, 0.0f);
  ggml_flash_attn_ext_set_prec(y, GGML_PREC_F32);
  return y;
}

/// Concatenation along the rows as a balanced tree: every value is copied log2(n) times, not n.
ggml_tensor* join(Graph& g, std::vector<ggml_tensor*> parts) {
  while (parts.size() > 1) {
    std::vector<ggml_tensor*> next;
    for (size_t i = 0; i + 1 < parts.size(); i += 2) next.push_back(ggml_concat(g.ctx(), parts[i], parts[i + 1], 2));
    if (parts.size() % 2) next.push_back(parts.back());
    parts = std::move(next);
  }
  return parts.front();
}

/// The last axis must lie densely; the others may have any strides.
ggml_tensor* dense_rows(Graph& g, ggml_tensor* x) { return x->nb[0] == ggml_type_size(x->type) ? x : contiguous(g, x); }

}  // namespace

ggml_tensor* attention_written_out(Graph& g, ggml_tensor* q, ggml_tensor* k, ggml_tensor* v, ggml_tensor* mask,
                                   float scale, int64_t score_bytes) {
  const int64_t keys = k->ne[1], queries = q->ne[1];
  const int64_t row_bytes = keys * q->ne[2] * q->ne[3] * static_cast<int64_t>(sizeof(float));
  const int64_t chunk = g.device().attention_chunk();
  const int64_t at_once = std::clamp<int64_t>(chunk ? chunk : score_bytes / row_bytes, 1, queries);
  v = ggml_cont(g.ctx(), ggml_permute(g.ctx(), v, 1, 0, 2, 3));  // [B, Hkv, D, Tk]
  std::vector<ggml_tensor*> parts;
  for (int64_t first = 0; first < queries; first += at_once) {
    const int64_t n = std::min(at_once, queries - first);
    ggml_tensor* scores = matmul(g, k, n == queries ? q : narrow(g, q, 2, first, n));  // [B, Hq, n, Tk]
    ggml_tensor* m = mask && n != queries ? contiguous(g, narrow(g, mask, 2, first, n)) : mask;
    ggml_tensor* y = matmul(g, v, ggml_soft_max_ext(g.ctx(), scores, m, scale, 0.0f));  // [B, Hq, n, D]
    parts.push_back(ggml_cont(g.ctx(), ggml_permute(g.ctx(), y, 0, 2, 1, 3)));          // [B, n, Hq, D]
  }
  return join(g, std::move(parts));
}

ggml_tensor* attention(Graph& g, ggml_tensor* q, ggml_tensor* k, ggml_tensor* v, ggml_tensor* mask, float scale) {
  const int64_t d = v->ne[0], heads = q->ne[1], queries = q->ne[2], batch = q->ne[3];
  if (mask) mask = contiguous(g, mask);
  if (own_kernels(g) && kernels::attends(k->type) && kernels::attends(v->type) && k->type == v->type)
    return kernels::attention(g, dense_rows(g, q), dense_rows(g, k), dense_rows(g, v), mask, scale);
  if (mask && mask->ne[1] == 1 && queries > 1)  // a key padding mask
    mask = ggml_repeat_4d(g.ctx(), mask, mask->ne[0], queries, 1, mask->ne[3]);
  const bool tiles = g.device().is_cpu() && queries >= kFusedQueries && d % 16 == 0 && k->type == GGML_TYPE_F32 &&
                     v->type == GGML_TYPE_F32;
  q = ggml_permute(g.ctx(), q, 0, 2, 1, 3);  // [B, H, T, D], views
  k = ggml_permute(g.ctx(), k, 0, 2, 1, 3);
  v = ggml_permute(g.ctx(), v, 0, 2, 1, 3);
  if (!g.device().is_cpu() && g.device().flash_attention() && queries > 1)
    return ggml_reshape_3d(g.ctx(), fused_on_card(g, q, k, v, mask, scale), d * heads, queries, batch);
  ggml_tensor* y = tiles ? fused(g, q, k, v, mask, scale) : attention_written_out(g, q, k, v, mask, scale, kScoreBytes);
  return ggml_reshape_3d(g.ctx(), y, d * heads, queries, batch);
}

}  // namespace danqing::nn
