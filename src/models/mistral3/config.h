// Ministral-3 / Mistral text stacks as Hugging Face configs describe them: sizes, RoPE, tensor names, cost. Qwen3 is
// the same stack with one norm more (see models/qwen3).
#pragma once
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/json.h"
#include "checkpoint/tensor_spec.h"

namespace danqing::mistral3 {

struct Config {
  int64_t vocab_size = 0, hidden_size = 0, intermediate_size = 0;
  int64_t num_hidden_layers = 0, num_attention_heads = 0, num_key_value_heads = 0, head_dim = 0;
  float rms_norm_eps = 1e-5f;
  bool tie_word_embeddings = false;
  bool qk_norm = false;        ///< an RMS norm over each query and key head before RoPE (Qwen3)
  int64_t sliding_window = 0;  ///< a token sees the last `sliding_window` positions, itself included; 0 = all
  double rope_theta = 1e6;
  bool yarn = false;     ///< rope_type "yarn"; otherwise plain RoPE
  bool truncate = true;  ///< YaRN: bounds of the ramp rounded outward
  double factor = 1, beta_fast = 32, beta_slow = 1, mscale = 0, mscale_all_dim = 0;
  double attention_factor = 0;  ///< 0 = by the mscale rule
  int64_t original_max_position_embeddings = 0, max_position_embeddings = 0;
  double llama_4_scaling_beta = 0;  ///< query scaling of `ministral3`; 0 = none (`mistral`)

  /// Reads config.json of a Mistral3Model (text_config inside), a Ministral3ForCausalLM or a Mistral model.
  /// Every size is checked for sense (positive, heads divisible, bounded) so that later arithmetic cannot overflow.
  /// Error bad_input names `where` and the field; features that would change the result and that this code does not
  /// compute (other activations, RoPE types, mixed layer types, quantised checkpoints with scales) are errors too.
  static Result<Config> parse(const Json& json, const std::string& where);

  /// For a bare file without config.json: vocabulary, widths, layers and heads from the tensors' shapes. The rest is
  /// what the released Ministral-3 models have: head_dim 128, eps 1e-5, theta 1e6, YaRN factor 16 over 16384 positions,
  /// query scaling 0.1, tied when the file has no head. The file must hold all layers (features leave out the last
  /// one).
  static Result<Config> infer(const TensorSource& source);
};

// Far above any released model, low enough that products of a few of them fit 63 bits and a double.
inline constexpr int64_t kMaxLayers = 1024, kMaxPositions = 1 << 30;

/// Vocabulary, widths, layers and heads of any config of this stack, each within its bounds. `default_head_dim` where
/// the config gives none; 0 = hidden_size / num_attention_heads.
Result<void> read_sizes(const JsonObject& o, int64_t default_head_dim, Config& c);

/// A config and the names under which files hold its tensors: what tells the architectures of this stack apart.
struct Architecture {
  Config config;
  NameMap names;
};

/// Inverse RoPE frequencies [head_dim/2] and the attention factor (Peng et al. 2023 for YaRN), in f32 and in the order
/// of operations of transformers, so that angles agree at large positions too.
struct RopeTable {
  std::vector<float> inv_freq;
  float attention_factor = 1;
};
RopeTable rope_table(const Config& c);
/// 1 + beta ln(1 + floor(position / original_max)): query scaling, applied after RoPE.
float query_scale(const Config& c, int64_t position);

/// What the graph needs for positions first .. first+count-1. Half-split RoPE: the second half repeats the first.
struct PositionTables {
  std::vector<float> cos, sin;     ///< [count, head_dim]
  std::vector<float> query_scale;  ///< [count], or empty when every entry would be 1
};
PositionTables position_tables(const Config& c, const RopeTable& rope, int64_t first, int64_t count);
/// Causal mask [rows, columns] of 0 and -inf: row r is position first+r and sees key columns 0..first+r, no more than
/// `sliding_window` of them.
std::vector<float> causal_mask(const Config& c, int64_t first, int64_t rows, int64_t columns);

/// Tensors of the stack; `layers` of them (text features need all but the last), final norm and head on demand.
/// A tied head adds no tensor.
std::vector<TensorSpec> tensor_table(const Config& c, int64_t layers, bool with_norm, bool with_head);
/// Name of a layer's tensor: layer_tensor(3, "mlp.up_proj") = "layers.3.mlp.up_proj.weight".
std::string layer_tensor(int64_t layer, std::string_view part);
const NameMap& name_map();

/// Floating point operations (2 per multiply-add) for one token that sees `context` keys; `layers` < 0 = all of them.
/// The text encoder runs num_hidden_layers - 1 layers without the head.
double flops_per_token(const Config& c, int64_t context, int64_t layers = -1, bool with_head = true);
/// Bytes of a KV cache for `positions` tokens over all layers.
uint64_t kv_bytes(const Config& c, int64_t positions, DType dtype);

}  // namespace danqing::mistral3
