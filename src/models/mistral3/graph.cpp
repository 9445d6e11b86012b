#include "models/mistral3/graph.h"

#include <algorithm>
#include <cmath>

#include "base/try.h"
#include "models/wide_linear.h"
#include "nn/nn.h"

namespace danqing::mistral3 {
namespace {

// Without a cache, this many queries attend at once: mask and scores grow with the length, not with its square.
constexpr int64_t kQueryRows = 1024;

// Rank-4 axes of nn: [batch, length, heads, head_dim], [1, 1, rows, keys], [1, batch, length, width].
constexpr int kTokens = 1, kMaskRows = 2, kMaskKeys = 3, kWideTokens = 2;

/// Attention of all queries. The mask depends on the distance of key and query only, so the rows of the last
/// `mask_rows` queries serve every earlier group of queries too, read from a shifted column.
ggml_tensor* attend(Graph& g, const Config& c, ggml_tensor* q, const KeyValues& kv, const PassInputs& in) {
  const PassShape& s = in.shape;
  const float scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
  if (s.mask_rows == s.length) return nn::attention(g, q, kv.k, kv.v, in.mask, scale);
  ggml_tensor* out = nullptr;
  for (int64_t begin = 0; begin < s.length; begin += s.mask_rows) {
    const int64_t end = std::min(begin + s.mask_rows, s.length), rows = end - begin;
    ggml_tensor* mask = nn::narrow(g, in.mask, kMaskRows, s.mask_rows - rows, rows);
    mask = nn::reshape(g, nn::narrow(g, mask, kMaskKeys, s.length - end, end), {1, 1, rows, end});
    ggml_tensor* part = nn::attention(g, nn::narrow(g, q, kTokens, begin, rows), nn::narrow(g, kv.k, kTokens, 0, end),
                                      nn::narrow(g, kv.v, kTokens, 0, end), mask, scale);
    out = out ? nn::concat(g, out, part, kWideTokens) : part;
  }
  return out;
}

}  // namespace

PassShape uncached_pass(const Config& c, int64_t batch, int64_t length) {
  return {batch, length, length, std::min(length, kQueryRows), query_scale(c, length - 1) != 1.0f};
}

size_t expected_nodes(int64_t layers) { return static_cast<size_t>(64 + 64 * layers); }

PassInputs make_inputs(Graph& g, const Config& c, const PassShape& s) {
  PassInputs in{.shape = s};
  in.ids = g.input("ids", DType::i32, {s.batch * s.length});
  in.cos = g.input("cos", DType::f32, {1, s.length, 1, c.head_dim});
  in.sin = g.input("sin", DType::f32, {1, s.length, 1, c.head_dim});
  if (s.query_scaled) in.query_scale = g.input("query_scale", DType::f32, {1, s.length, 1, 1});
  in.mask = g.input("mask", DType::f32, {1, 1, s.mask_rows, s.keys});
  return in;
}

Result<void> set_positions(Runner& r, const Config& c, const RopeTable& rope, const PassShape& s, int64_t first) {
  const PositionTables t = position_tables(c, rope, first, s.length);
  DQ_CHECK(r.set("cos", t.cos));
  DQ_CHECK(r.set("sin", t.sin));
  if (s.query_scaled) DQ_CHECK(r.set("query_scale", t.query_scale));
  return r.set("mask", causal_mask(c, first + s.length - s.mask_rows, s.mask_rows, s.keys));
}

Result<void> check_ids(const Config& c, std::span<const int32_t> ids, std::string_view stage) {
  if (ids.empty()) return usage_error("[{}] expected at least one token id, got none", stage);
  if (static_cast<int64_t>(ids.size()) > c.max_position_embeddings)
    return usage_error("[{}] expected at most {} tokens (max_position_embeddings), got {}; shorten the prompt", stage,
                       c.max_position_embeddings, ids.size());
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids[i] < 0 || ids[i] >= c.vocab_size)
      return usage_error(
          "[{}] expected token ids 0 to {}, got {} at position {}; tokenizer and model do not belong together", stage,
          c.vocab_size - 1, ids[i], i);
  return {};
}

ggml_tensor* embed(Graph& g, const Config& c, const Weights& w, const PassInputs& in) {
  ggml_tensor* rows = nn::embedding(g, in.ids, w.at("embed_tokens.weight"));
  return nn::reshape(g, rows, {in.shape.batch, in.shape.length, c.hidden_size});
}

ggml_tensor* decoder_layer(Graph& g, const Config& c, const Weights& w, int64_t layer, ggml_tensor* x,
                           const PassInputs& in, const KeyValueStore& store) {
  const int64_t b = in.shape.batch, n = in.shape.length;
  auto weight = [&](std::string_view part) { return w.at(layer_tensor(layer, part)); };
  auto heads = [&](ggml_tensor* y, std::string_view part, int64_t count) {
    return nn::reshape(g, nn::linear(g, y, weight(part)), {b, n, count, c.head_dim});
  };
  ggml_tensor* y = nn::rms_norm(g, x, weight("input_layernorm"), c.rms_norm_eps);
  ggml_tensor* q = heads(y, "self_attn.q_proj", c.num_attention_heads);
  KeyValues kv{heads(y, "self_attn.k_proj", c.num_key_value_heads),
               heads(y, "self_attn.v_proj", c.num_key_value_heads)};
  if (c.qk_norm) {
    q = nn::rms_norm(g, q, weight("self_attn.q_norm"), c.rms_norm_eps);
    kv.k = nn::rms_norm(g, kv.k, weight("self_attn.k_norm"), c.rms_norm_eps);
  }
  q = nn::rope(g, q, in.cos, in.sin, nn::RopeStyle::half);
  kv.k = nn::rope(g, kv.k, in.cos, in.sin, nn::RopeStyle::half);
  if (in.query_scale) q = nn::mul(g, q, in.query_scale);
  if (store) kv = store(layer, kv);
  x = nn::add(g, x, nn::linear(g, attend(g, c, q, kv, in), weight("self_attn.o_proj")));

  y = nn::rms_norm(g, x, weight("post_attention_layernorm"), c.rms_norm_eps);
  ggml_tensor* up = nn::linear(g, y, weight("mlp.up_proj"));
  y = nn::swiglu(g, nn::linear(g, y, weight("mlp.gate_proj")), up);
  return nn::add(g, x, wide_linear(g, y, weight("mlp.down_proj")));
}

}  // namespace danqing::mistral3
