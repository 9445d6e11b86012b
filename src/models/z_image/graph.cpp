#include "models/z_image/graph.h"

#include <fmt/format.h>

#include <cmath>

#include "models/wide_linear.h"
#include "nn/nn.h"

namespace danqing::z_image {
namespace {

// Rank-4 axes of nn: rows of [rows, width] and tokens of [batch, tokens, width]; tokens of a table [batch, tokens, 1,
// width]; the last axis.
constexpr int kRows = 2, kTableTokens = 1, kLast = 3;

/// What the layers of one stream share.
struct Stream {
  Graph& g;
  const Config& c;
  const Weights& w;
  int64_t batch, tokens;
  ggml_tensor *cos, *sin;
  ggml_tensor* mask;  // null: every token sees every token
  ggml_tensor* time;  // [B, time_dim]; null: no modulation

  ggml_tensor* linear(ggml_tensor* x, const std::string& name) const {
    return nn::linear(g, x, w.at(name + ".weight"), w.find(name + ".bias"));
  }
  ggml_tensor* norm(ggml_tensor* x, const std::string& name) const {
    return nn::rms_norm(g, x, w.at(name + ".weight"), c.norm_eps);
  }
  void tap(const std::string& name, ggml_tensor* x) const { g.tap(name, x, {batch, tokens, c.dim}); }
};

struct Heads {
  ggml_tensor *q, *k, *v;  // [B, tokens, n_heads, head_dim]
};

Heads project(const Stream& s, const std::string& prefix, ggml_tensor* x) {
  const Shape shape{s.batch, s.tokens, s.c.n_heads, s.c.head_dim()};
  if (ggml_tensor* fused = s.w.find(prefix + "qkv.weight")) {
    ggml_tensor* all = nn::linear(s.g, x, fused);
    const auto part = [&](int64_t i) {
      return nn::reshape(s.g, nn::narrow(s.g, all, kLast, i * s.c.dim, s.c.dim), shape);
    };
    return {part(0), part(1), part(2)};
  }
  const auto part = [&](const char* name) { return nn::reshape(s.g, s.linear(x, prefix + name), shape); };
  return {part("to_q"), part("to_k"), part("to_v")};
}

ggml_tensor* attention(const Stream& s, const std::string& prefix, ggml_tensor* x) {
  Heads h = project(s, prefix, x);
  if (s.c.qk_norm) {  // eps is the attention's own, not the config's
    h.q = nn::rms_norm(s.g, h.q, s.w.at(prefix + "norm_q.weight"), 1e-5f);
    h.k = nn::rms_norm(s.g, h.k, s.w.at(prefix + "norm_k.weight"), 1e-5f);
  }
  h.q = nn::rope(s.g, h.q, s.cos, s.sin, nn::RopeStyle::adjacent);
  h.k = nn::rope(s.g, h.k, s.cos, s.sin, nn::RopeStyle::adjacent);
  const float scale = 1.0f / std::sqrt(static_cast<float>(s.c.head_dim()));
  return s.linear(nn::attention(s.g, h.q, h.k, h.v, s.mask, scale), prefix + "to_out.0");
}

ggml_tensor* feed_forward(const Stream& s, const std::string& prefix, ggml_tensor* x) {
  ggml_tensor* y = nn::swiglu(s.g, s.linear(x, prefix + "w1"), s.linear(x, prefix + "w3"));
  return wide_linear(s.g, y, s.w.at(prefix + "w2.weight"));
}

// x + gate * norm2(branch(norm1(x) * (1 + scale))), once for attention and once for the MLP; a context layer has
// neither scale nor gate.
ggml_tensor* layer(const Stream& s, const std::string& name, ggml_tensor* x) {
  ggml_tensor *scale[2] = {}, *gate[2] = {};
  if (s.time) {
    ggml_tensor* four = s.linear(s.time, name + ".adaLN_modulation.0");
    const auto part = [&](int64_t i) {
      return nn::reshape(s.g, nn::narrow(s.g, four, kLast, i * s.c.dim, s.c.dim), {s.batch, 1, s.c.dim});
    };
    for (int64_t i = 0; i < 2; ++i) {
      scale[i] = part(2 * i);
      gate[i] = nn::tanh(s.g, part(2 * i + 1));
    }
  }
  const auto branch = [&](int i, const std::string& norm, const char* part, auto function) {
    ggml_tensor* y = s.norm(x, name + norm + "1");
    if (s.time) y = nn::modulate(s.g, y, scale[i], nullptr);
    y = function(s, name + part + ".", y);
    s.tap(name + part, y);
    y = s.norm(y, name + norm + "2");
    return nn::add(s.g, x, s.time ? nn::mul(s.g, y, gate[i]) : y);
  };
  x = branch(0, ".attention_norm", ".attention", attention);
  x = branch(1, ".ffn_norm", ".feed_forward", feed_forward);
  s.tap(name, x);
  return x;
}

ggml_tensor* layers(const Stream& s, const char* list, int64_t count, ggml_tensor* x) {
  for (int64_t i = 0; i < count; ++i) x = layer(s, fmt::format("{}.{}", list, i), x);
  return x;
}

/// Embedded rows [B * tokens, dim] in their places, the pad token in the others: [B, tokens, dim].
ggml_tensor* place(const Stream& s, ggml_tensor* rows, const char* pad_token, ggml_tensor* which) {
  ggml_tensor* table = nn::concat(s.g, rows, s.w.at(pad_token), kRows);
  return nn::reshape(s.g, nn::embedding(s.g, which, table), {s.batch, s.tokens, s.c.dim});
}

constexpr size_t kNodesPerLayer = 72, kNodesAround = 64;  // an estimate is enough: a graph grows

}  // namespace

std::unique_ptr<Graph> build_graph(Device& device, const Config& c, const Weights& weights, const GraphShape& s) {
  const int64_t all_layers = c.n_layers + 2 * c.n_refiner_layers;
  auto graph = std::make_unique<Graph>(device, kNodesAround + kNodesPerLayer * static_cast<size_t>(all_layers), s.taps);
  Graph& g = *graph;
  const int64_t batch = s.batch, image = s.image_tokens(), caption = s.caption_tokens;
  const int64_t patch = c.patch_size * c.patch_size * c.in_channels;
  ggml_tensor* latents = g.input("latents", DType::f32, {batch * image, patch});
  ggml_tensor* text = g.input("caption", DType::f32, {batch * caption, c.cap_feat_dim});
  ggml_tensor* sinusoid = g.input("time", DType::f32, {batch, 1, 256});
  ggml_tensor* image_rows = g.input("image_rows", DType::i32, {batch * image});
  ggml_tensor* caption_rows = g.input("caption_rows", DType::i32, {batch * caption});
  const Shape table{s.ragged ? batch : 1, s.tokens(), 1, c.head_dim()};
  ggml_tensor* cos = g.input("cos", DType::f32, table);
  ggml_tensor* sin = g.input("sin", DType::f32, table);
  ggml_tensor* mask = s.ragged ? g.input("mask", DType::f32, {batch, 1, 1, s.tokens()}) : nullptr;
  const auto of_table = [&](ggml_tensor* t, int64_t first, int64_t n) {
    return nn::narrow(g, t, kTableTokens, first, n);
  };

  Stream joint{g, c, weights, batch, s.tokens(), cos, sin, mask, nullptr};
  ggml_tensor* t = joint.linear(nn::silu(g, joint.linear(sinusoid, "t_embedder.mlp.0")), "t_embedder.mlp.2");
  g.tap("t_embedder", t, {batch, c.time_dim()});
  joint.time = t;
  const Stream images{g, c, weights, batch, image, of_table(cos, 0, image), of_table(sin, 0, image), nullptr, t};
  const Stream captions{g,
                        c,
                        weights,
                        batch,
                        caption,
                        of_table(cos, image, caption),
                        of_table(sin, image, caption),
                        mask ? nn::narrow(g, mask, kLast, image, caption) : nullptr,
                        nullptr};

  ggml_tensor* x = joint.linear(latents, "x_embedder");
  g.tap("x_embedder", x, {batch * image, c.dim});
  x = layers(images, "noise_refiner", c.n_refiner_layers, place(images, x, "x_pad_token", image_rows));

  ggml_tensor* y = joint.linear(joint.norm(text, "cap_embedder.0"), "cap_embedder.1");
  g.tap("cap_embedder", y, {batch * caption, c.dim});
  y = layers(captions, "context_refiner", c.n_refiner_layers, place(captions, y, "cap_pad_token", caption_rows));

  x = layers(joint, "layers", c.n_layers, nn::concat(g, x, y, kRows));

  ggml_tensor* scale = joint.linear(nn::silu(g, t), "final_layer.adaLN_modulation.1");
  x = nn::layer_norm(g, x, nullptr, nullptr, 1e-6f);
  x = joint.linear(nn::modulate(g, x, nn::reshape(g, scale, {batch, 1, c.dim}), nullptr), "final_layer.linear");
  g.tap("final_layer", x, {batch, s.tokens(), patch});
  g.output("patches", nn::reshape(g, nn::narrow(g, x, kRows, 0, image), {batch, image, patch}), {batch, image, patch});
  return graph;
}

}  // namespace danqing::z_image
