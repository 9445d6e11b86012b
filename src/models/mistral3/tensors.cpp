// Names and shapes of the stack's tensors, and what they cost.
#include <fmt/format.h>

#include "models/mistral3/config.h"

namespace danqing::mistral3 {

std::string layer_tensor(int64_t layer, std::string_view part) {
  return fmt::format("layers.{}.{}.weight", layer, part);
}

std::vector<TensorSpec> tensor_table(const Config& c, int64_t layers, bool with_norm, bool with_head) {
  const int64_t h = c.hidden_size, m = c.intermediate_size;
  const int64_t q = c.num_attention_heads * c.head_dim, kv = c.num_key_value_heads * c.head_dim;
  std::vector<TensorSpec> t{{"embed_tokens.weight", {c.vocab_size, h}, WeightUse::table}};
  for (int64_t i = 0; i < layers; ++i) {
    const auto add = [&](std::string_view part, Shape shape, WeightUse use = WeightUse::matrix) {
      t.push_back({layer_tensor(i, part), std::move(shape), use, false, static_cast<int>(i)});
    };
    add("input_layernorm", {h}, WeightUse::vector);
    add("self_attn.q_proj", {q, h});
    add("self_attn.k_proj", {kv, h});
    add("self_attn.v_proj", {kv, h});
    add("self_attn.o_proj", {h, q});
    if (c.qk_norm)
      for (const char* norm : {"self_attn.q_norm", "self_attn.k_norm"}) add(norm, {c.head_dim}, WeightUse::vector);
    add("post_attention_layernorm", {h}, WeightUse::vector);
    add("mlp.gate_proj", {m, h});
    add("mlp.up_proj", {m, h});
    add("mlp.down_proj", {h, m});
  }
  if (with_norm) t.push_back({"norm.weight", {h}, WeightUse::vector});
  if (with_head && !c.tie_word_embeddings) t.push_back({"lm_head.weight", {c.vocab_size, h}});
  return t;
}

const NameMap& name_map() {
  static const NameMap map{
      .prefixes = {"language_model.model.", "model.language_model.", "language_model.", "model.", "text_encoder.", ""},
      .aliases = {{"language_model.lm_head.", "lm_head."}},
      .ignored = {"vision_tower.", "model.vision_tower.", "multi_modal_projector.", "model.multi_modal_projector.",
                  "lm_head."},
  };
  return map;
}

double flops_per_token(const Config& c, int64_t context, int64_t layers, bool with_head) {
  const double h = static_cast<double>(c.hidden_size), m = static_cast<double>(c.intermediate_size);
  const double q = static_cast<double>(c.num_attention_heads * c.head_dim);
  const double kv = static_cast<double>(c.num_key_value_heads * c.head_dim);
  const double per_layer = 2 * h * (2 * q + 2 * kv + 3 * m) + 4 * q * static_cast<double>(context);
  const double n = static_cast<double>(layers < 0 ? c.num_hidden_layers : layers);
  return n * per_layer + (with_head ? 2 * h * static_cast<double>(c.vocab_size) : 0);
}

uint64_t kv_bytes(const Config& c, int64_t positions, DType dtype) {
  const DTypeTraits& t = traits(dtype);
  const auto values = static_cast<uint64_t>(2 * c.num_hidden_layers * c.num_key_value_heads * c.head_dim) *
                      static_cast<uint64_t>(positions);
  return values / static_cast<uint64_t>(t.block_elements) * static_cast<uint64_t>(t.block_bytes);
}

}  // namespace danqing::mistral3
