#include <fmt/format.h>

#include "models/ernie_image/transformer.h"

namespace danqing::ernie_image {

std::vector<TensorSpec> tensor_table(const Config& c) {
  const int64_t h = c.hidden_size, f = c.ffn_hidden_size, p = c.patch_size;
  std::vector<TensorSpec> t;
  int group = -1;
  const auto matrix = [&](std::string name, int64_t out, int64_t in) {
    t.push_back({std::move(name), {out, in}, WeightUse::matrix, false, group});
  };
  const auto vector = [&](std::string name, int64_t n) {
    t.push_back({std::move(name), {n}, WeightUse::vector, false, group});
  };
  const auto biased = [&](const std::string& name, int64_t out, int64_t in) {
    matrix(name + ".weight", out, in);
    vector(name + ".bias", out);
  };

  // A convolution with kernel = stride is a linear layer over patches.
  if (p == 1)
    matrix("x_embedder.proj.weight", h, c.in_channels);
  else
    t.push_back({"x_embedder.proj.weight", {h, c.in_channels, p, p}, WeightUse::kernel});
  vector("x_embedder.proj.bias", h);
  if (c.has_text_proj()) matrix("text_proj.weight", h, c.text_in_dim);
  biased("time_embedding.linear_1", h, h);
  biased("time_embedding.linear_2", h, h);
  biased("adaLN_modulation.1", 6 * h, h);
  for (int64_t i = 0; i < c.num_layers; ++i) {
    const std::string l = fmt::format("layers.{}.", i), a = l + "self_attention.";
    group = static_cast<int>(i);
    vector(l + "adaLN_sa_ln.weight", h);
    for (const char* n : {"to_q", "to_k", "to_v", "to_out.0"}) matrix(a + n + ".weight", h, h);
    if (c.qk_layernorm) {
      vector(a + "norm_q.weight", c.head_dim());
      vector(a + "norm_k.weight", c.head_dim());
    }
    vector(l + "adaLN_mlp_ln.weight", h);
    matrix(l + "mlp.gate_proj.weight", f, h);
    matrix(l + "mlp.up_proj.weight", f, h);
    matrix(l + "mlp.linear_fc2.weight", h, f);
  }
  group = -1;
  biased("final_norm.linear", 2 * h, h);
  biased("final_linear", p * p * c.out_channels, h);
  return t;
}

const NameMap& name_map() {
  static const NameMap map{{"", "model.diffusion_model.", "diffusion_model.", "transformer.", "model."}, {}, {}};
  return map;
}

}  // namespace danqing::ernie_image
