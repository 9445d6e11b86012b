// Ministral-3 / Mistral text stacks as Hugging Face configs describe them.
#pragma once
#include <string>
#include <vector>

#include "base/json.h"
#include "checkpoint/tensor_spec.h"

namespace danqing::mistral3 {

struct Config {
  int64_t vocab_size = 0, hidden_size = 0, intermediate_size = 0;
  int64_t num_hidden_layers = 0, num_attention_heads = 0, num_key_value_heads = 0, head_dim = 0;
  float rms_norm_eps = 1e-5f;
  bool tie_word_embeddings = false;
  double rope_theta = 1e6;
  bool yarn = false;                         ///< rope_type "yarn"; otherwise plain RoPE
  double factor = 1, beta_fast = 32, beta_slow = 1, mscale = 1, mscale_all_dim = 0, attention_factor = 0;
  int64_t original_max_position_embeddings = 0, max_position_embeddings = 0;
  double llama_4_scaling_beta = 0;           ///< query scaling of `ministral3`; 0 = none (`mistral`)

  /// Reads config.json of a Mistral3Model (text_config inside), a Ministral3ForCausalLM or a Mistral model.
  /// Every size is checked for sense (positive, heads divisible, bounded) so that later arithmetic cannot overflow.
  static Result<Config> parse(const Json& json, const std::string& where);
};

/// Inverse RoPE frequencies [head_dim/2] and the attention factor (Peng et al. 2023 for YaRN).
struct RopeTable {
  std::vector<float> inv_freq;
  float attention_factor = 1;
};
RopeTable rope_table(const Config& c);
/// 1 + beta ln(1 + floor(position / original_max)): query scaling.
float query_scale(const Config& c, int64_t position);

/// Tensors of the stack; `layers` of them (text features need all but the last), head and final norm on demand.
std::vector<TensorSpec> tensor_table(const Config& c, int64_t layers, bool with_head);
const NameMap& name_map();

}  // namespace danqing::mistral3
