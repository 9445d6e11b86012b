#include "models/ernie_image/graph.h"

#include <fmt/format.h>

#include <cmath>

#include "nn/nn.h"

namespace danqing::ernie_image {
namespace {

/// One branch's third of the shared modulation, each [B, 1, hidden].
struct Modulation {
  ggml_tensor *shift, *scale, *gate;
};

/// What all blocks share.
struct Context {
  Graph& g;
  const Config& c;
  const Weights& w;
  GraphShape shape;
  ggml_tensor *cos, *sin, *mask;  // mask null: every token sees every token

  Shape rows(int64_t tokens, int64_t width) const { return {shape.batch, tokens, width}; }
  void tap_tokens(const std::string& name, ggml_tensor* x) const {
    g.tap(name, x, rows(shape.tokens(), c.hidden_size));
  }
  ggml_tensor* linear(ggml_tensor* x, const std::string& name) const {
    return nn::linear(g, x, w.at(name + ".weight"), w.find(name + ".bias"));
  }
};

ggml_tensor* heads(const Context& k, ggml_tensor* x, const std::string& prefix, const char* projection,
                   const char* norm) {
  ggml_tensor* y = k.linear(x, prefix + projection);
  y = nn::reshape(k.g, y, {k.shape.batch, k.shape.tokens(), k.c.num_attention_heads, k.c.head_dim()});
  if (!norm) return y;
  if (k.c.qk_layernorm) y = nn::rms_norm(k.g, y, k.w.at(prefix + norm + ".weight"), k.c.eps);
  return nn::rope(k.g, y, k.cos, k.sin, nn::RopeStyle::half);
}

ggml_tensor* attention(const Context& k, const std::string& prefix, ggml_tensor* x) {
  ggml_tensor* q = heads(k, x, prefix, "to_q", "norm_q");
  ggml_tensor* key = heads(k, x, prefix, "to_k", "norm_k");
  ggml_tensor* v = heads(k, x, prefix, "to_v", nullptr);
  const float scale = 1.0f / std::sqrt(static_cast<float>(k.c.head_dim()));
  return k.linear(nn::attention(k.g, q, key, v, k.mask, scale), prefix + "to_out.0");
}

ggml_tensor* mlp(const Context& k, const std::string& prefix, ggml_tensor* x) {
  ggml_tensor* gate = k.linear(x, prefix + "gate_proj");
  ggml_tensor* up = k.linear(x, prefix + "up_proj");
  return k.linear(nn::geglu_erf(k.g, gate, up), prefix + "linear_fc2");
}

// x + gate * branch(norm(x) * (1 + scale) + shift), once for attention and once for the MLP.
ggml_tensor* block(const Context& k, int64_t i, ggml_tensor* x, const Modulation& sa, const Modulation& ff) {
  const std::string l = fmt::format("layers.{}.", i), tap = fmt::format("block.{}", i);
  ggml_tensor* y = nn::rms_norm(k.g, x, k.w.at(l + "adaLN_sa_ln.weight"), k.c.eps);
  y = attention(k, l + "self_attention.", nn::modulate(k.g, y, sa.scale, sa.shift));
  k.tap_tokens(tap + ".attention", y);
  x = nn::add(k.g, x, nn::mul(k.g, y, sa.gate));

  y = nn::rms_norm(k.g, x, k.w.at(l + "adaLN_mlp_ln.weight"), k.c.eps);
  y = mlp(k, l + "mlp.", nn::modulate(k.g, y, ff.scale, ff.shift));
  k.tap_tokens(tap + ".mlp", y);
  x = nn::add(k.g, x, nn::mul(k.g, y, ff.gate));
  k.tap_tokens(tap, x);
  return x;
}

// The n-th slice of `width` of vectors [B, k*width], as [B, 1, width].
ggml_tensor* part(Graph& g, ggml_tensor* x, int64_t batch, int64_t width, int64_t n) {
  return nn::reshape(g, nn::narrow(g, x, 3, n * width, width), {batch, 1, width});
}

ggml_tensor* embed_image(const Context& k, ggml_tensor* patches) {
  ggml_tensor* kernel = k.w.at("x_embedder.proj.weight");
  const int64_t p = k.c.patch_size;
  if (p > 1) kernel = nn::reshape(k.g, kernel, {k.c.hidden_size, k.c.in_channels * p * p});
  ggml_tensor* x = nn::linear(k.g, patches, kernel, k.w.at("x_embedder.proj.bias"));
  k.g.tap("x_embedder", x, k.rows(k.shape.h * k.shape.w, k.c.hidden_size));
  return x;
}

constexpr size_t kNodesPerLayer = 64, kNodesAround = 64;  // an estimate is enough: a graph grows

}  // namespace

std::unique_ptr<Graph> build_graph(Device& device, const Config& c, const Weights& weights, const GraphShape& s) {
  auto graph =
      std::make_unique<Graph>(device, kNodesAround + kNodesPerLayer * static_cast<size_t>(c.num_layers), s.taps);
  Graph& g = *graph;
  const int64_t batch = s.batch, image_tokens = s.h * s.w, hidden = c.hidden_size;
  ggml_tensor* latents =
      g.input("latents", DType::f32, {batch, image_tokens, c.in_channels * c.patch_size * c.patch_size});
  ggml_tensor* text = g.input("text", DType::f32, {batch, s.text_tokens, c.text_in_dim});
  ggml_tensor* time = g.input("time", DType::f32, {batch, 1, hidden});
  const Shape table{s.ragged ? batch : 1, s.tokens(), 1, c.head_dim()};
  Context k{g, c, weights, s, g.input("cos", DType::f32, table), g.input("sin", DType::f32, table), nullptr};
  if (s.ragged) k.mask = g.input("mask", DType::f32, {batch, 1, 1, s.tokens()});

  ggml_tensor* x = embed_image(k, latents);
  if (c.has_text_proj()) {
    text = k.linear(text, "text_proj");
    g.tap("text_proj", text, k.rows(s.text_tokens, hidden));
  }
  x = nn::concat(g, x, text, 2);

  // Time embedding and the six modulation vectors, one set for all layers.
  ggml_tensor* t = k.linear(nn::silu(g, k.linear(time, "time_embedding.linear_1")), "time_embedding.linear_2");
  g.tap("time_embedding", t, {batch, hidden});
  ggml_tensor* six = k.linear(nn::silu(g, t), "adaLN_modulation.1");
  g.tap("adaln", six, {batch, 6 * hidden});
  const auto nth = [&](int64_t n) { return part(g, six, batch, hidden, n); };
  const Modulation sa{nth(0), nth(1), nth(2)}, ff{nth(3), nth(4), nth(5)};
  for (int64_t i = 0; i < c.num_layers; ++i) x = block(k, i, x, sa, ff);

  // Here the order is scale, shift, and the vector does not pass through SiLU.
  ggml_tensor* two = k.linear(t, "final_norm.linear");
  x = nn::layer_norm(g, x, nullptr, nullptr, c.eps);
  x = nn::modulate(g, x, part(g, two, batch, hidden, 0), part(g, two, batch, hidden, 1));
  k.tap_tokens("final_norm", x);
  x = k.linear(x, "final_linear");
  const int64_t patch = c.patch_size * c.patch_size * c.out_channels;
  g.tap("final_linear", x, k.rows(s.tokens(), patch));
  g.output("patches", nn::reshape(g, nn::narrow(g, x, 2, 0, image_tokens), {batch, image_tokens, patch}));
  return graph;
}

}  // namespace danqing::ernie_image
