#include <fmt/format.h>

#include <algorithm>

#include "models/z_image/transformer.h"

namespace danqing::z_image {

std::vector<TensorSpec> tensor_table(const Config& c, bool fused_qkv) {
  const int64_t d = c.dim, f = c.ffn_dim, patch = c.patch_size * c.patch_size * c.in_channels;
  std::vector<TensorSpec> t;
  int group = -1, groups = 0;
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
  const auto layers = [&](const char* list, int64_t count, bool modulated) {
    for (int64_t i = 0; i < count; ++i) {
      group = groups++;
      const std::string l = fmt::format("{}.{}.", list, i), a = l + "attention.";
      if (fused_qkv)
        matrix(a + "qkv.weight", 3 * d, d);
      else
        for (const char* n : {"to_q", "to_k", "to_v"}) matrix(a + n + ".weight", d, d);
      matrix(a + "to_out.0.weight", d, d);
      if (c.qk_norm) {
        vector(a + "norm_q.weight", c.head_dim());
        vector(a + "norm_k.weight", c.head_dim());
      }
      matrix(l + "feed_forward.w1.weight", f, d);
      matrix(l + "feed_forward.w2.weight", d, f);
      matrix(l + "feed_forward.w3.weight", f, d);
      for (const char* n : {"attention_norm1", "attention_norm2", "ffn_norm1", "ffn_norm2"})
        vector(l + n + ".weight", d);
      if (modulated) biased(l + "adaLN_modulation.0", 4 * d, c.time_dim());
    }
    group = -1;
  };

  biased("x_embedder", d, patch);
  for (const char* n : {"x_pad_token", "cap_pad_token"}) t.push_back({n, {1, d}, WeightUse::vector});
  vector("cap_embedder.0.weight", c.cap_feat_dim);
  biased("cap_embedder.1", d, c.cap_feat_dim);
  biased("t_embedder.mlp.0", c.time_hidden, 256);
  biased("t_embedder.mlp.2", c.time_dim(), c.time_hidden);
  // In the order in which a pass needs them: the image's side of the last concatenation comes first.
  layers("noise_refiner", c.n_refiner_layers, true);
  layers("context_refiner", c.n_refiner_layers, false);
  layers("layers", c.n_layers, true);
  biased("final_layer.adaLN_modulation.1", d, c.time_dim());
  biased("final_layer.linear", patch, d);
  return t;
}

NameMap name_map(const Config& c) {
  return {.prefixes = {"", "model.diffusion_model.", "diffusion_model.", "transformer.", "model."},
          .aliases = {{fmt::format("all_x_embedder.{}-1.", c.patch_size), "x_embedder."},
                      {fmt::format("all_final_layer.{}-1.", c.patch_size), "final_layer."},
                      {"attention.q_norm.", "attention.norm_q."},
                      {"attention.k_norm.", "attention.norm_k."},
                      {"attention.out.", "attention.to_out.0."}},
          .ignored = {"norm_final.", "siglip_"}};  // left over from Lumina 2; of the variant that edits pictures
}

bool has_fused_qkv(const TensorSource& source) {
  return std::any_of(source.tensors().begin(), source.tensors().end(),
                     [](const TensorInfo& t) { return t.name.ends_with("layers.0.attention.qkv.weight"); });
}

}  // namespace danqing::z_image
