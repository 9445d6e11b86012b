// config.json -> Config, with every field checked.
#include "models/mistral3/config.h"

#include <algorithm>
#include <cmath>

#include "base/try.h"

namespace danqing::mistral3 {
namespace {

// As kMaxLayers and kMaxPositions.
constexpr int64_t kMaxWidth = 1 << 17, kMaxVocab = 1 << 23, kMaxHeads = 2048, kMaxHeadDim = 1024;

/// The object with the sizes: text_config of a multimodal model, or the document itself.
Result<JsonObject> text_object(const JsonObject& root) {
  DQ_TRY(const std::string outer, root.string("model_type", ""));
  if (!root.has("text_config")) {
    if (outer == "mistral3")
      return bad_input("[config] {}: expected text_config beside model_type mistral3, got none", root.where());
    return root;
  }
  if (!outer.empty() && outer != "mistral3")
    return bad_input("[config] {}: expected model_type mistral3 around text_config, got \"{}\"", root.where(), outer);
  return root.object("text_config");
}

/// Fields that mean another computation than ours: refuse instead of giving wrong features.
Result<void> refuse_unsupported(const JsonObject& root, const JsonObject& text) {
  DQ_TRY(const std::string act, text.string("hidden_act", "silu"));
  if (act != "silu") return bad_input("[config] {}: expected hidden_act silu, got \"{}\"", text.where(), act);
  for (const char* key : {"attention_bias", "mlp_bias"}) {
    DQ_TRY(const bool bias, text.boolean(key, false));
    if (bias) return bad_input("[config] {}: expected {} false, got true", text.where(), key);
  }
  if (root.has("quantization_config") || text.has("quantization_config"))
    return bad_input(
        "[config] {}: quantization_config (weights with separate scales) is not supported; use the bf16 "
        "checkpoint or a GGUF-type quantisation",
        text.where());
  return {};
}

/// The window of sliding attention, if any layer uses one. `layer_types` must then say the same for all layers.
Result<void> read_window(const JsonObject& o, Config& c) {
  DQ_TRY(c.sliding_window, o.integer_in("sliding_window", 0, int64_t{1} << 40, 0));
  if (const Json* types = o.get("layer_types")) {
    if (!types->is_array() || types->empty())
      return bad_input("[config] {}: expected layer_types to be a list of names", o.where());
    const Json& first = types->front();
    for (const Json& t : *types)
      if (t != first || (t != "full_attention" && t != "sliding_attention"))
        return bad_input("[config] {}: expected layer_types all full_attention or all sliding_attention, got {}",
                         o.where(), dump_json(t));
    if (first == "full_attention")
      c.sliding_window = 0;
    else if (c.sliding_window == 0)
      return bad_input("[config] {}: expected sliding_window for sliding_attention", o.where());
  }
  if (c.sliding_window >= c.max_position_embeddings) c.sliding_window = 0;
  return {};
}

Result<void> read_yarn(const JsonObject& text, const JsonObject& rope, Config& c) {
  DQ_TRY(const int64_t outer_original,
         text.integer_in("original_max_position_embeddings", 1, kMaxPositions, c.max_position_embeddings));
  DQ_TRY(c.original_max_position_embeddings,
         rope.integer_in("original_max_position_embeddings", 1, kMaxPositions, outer_original));
  DQ_TRY(c.factor, rope.number("factor", static_cast<double>(c.max_position_embeddings) /
                                             static_cast<double>(c.original_max_position_embeddings)));
  DQ_TRY(c.beta_fast, rope.number("beta_fast", 32));
  DQ_TRY(c.beta_slow, rope.number("beta_slow", 1));
  if (c.beta_fast == 0) c.beta_fast = 32;  // transformers: `get(...) or 32`
  if (c.beta_slow == 0) c.beta_slow = 1;
  DQ_TRY(c.mscale, rope.number("mscale", 0));
  DQ_TRY(c.mscale_all_dim, rope.number("mscale_all_dim", 0));
  DQ_TRY(c.attention_factor, rope.number("attention_factor", 0));
  DQ_TRY(c.truncate, rope.boolean("truncate", true));
  const bool sane = c.factor > 0 && c.factor <= 1e6 && c.beta_slow > 0 && c.beta_fast >= c.beta_slow &&
                    c.beta_fast <= 1e6 && c.attention_factor >= 0;
  if (!sane)
    return bad_input(
        "[config] {}: expected YaRN factor in (0, 1e6], 0 < beta_slow <= beta_fast <= 1e6, attention_factor "
        ">= 0, got factor {}, beta_slow {}, beta_fast {}, attention_factor {}",
        text.where(), c.factor, c.beta_slow, c.beta_fast, c.attention_factor);
  return {};
}

/// RoPE as new configs (rope_parameters) and old ones (rope_theta at the top, rope_scaling or null) write it.
Result<void> read_rope(const JsonObject& text, bool ministral, Config& c) {
  const char* key = text.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  const Json none = Json::object();
  DQ_TRY(const JsonObject rope, text.has(key) ? text.object(key) : JsonObject::of(none, text.where()));
  for (const auto& [name, value] : rope.json().items())
    if (value.is_object())
      return bad_input("[config] {}: expected one set of RoPE parameters for all layers, got an object in {}.{}",
                       text.where(), key, name);
  if (!rope.has("rope_theta") && !text.has("rope_theta"))
    return bad_input("[config] {}: expected rope_theta (at the top or in rope_parameters), got none", text.where());
  DQ_TRY(c.rope_theta, (rope.has("rope_theta") ? rope : text).number("rope_theta"));
  if (!(c.rope_theta > 1 && c.rope_theta <= 1e15))
    return bad_input("[config] {}: expected rope_theta in (1, 1e15], got {}", text.where(), c.rope_theta);
  DQ_TRY(const double partial, rope.number("partial_rotary_factor", 1));
  if (partial != 1) return bad_input("[config] {}: expected partial_rotary_factor 1, got {}", text.where(), partial);

  DQ_TRY(const std::string old_type, rope.string("type", "default"));
  DQ_TRY(const std::string type, rope.string("rope_type", old_type));
  if (type != "default" && type != "yarn")
    return bad_input("[config] {}: expected rope_type default or yarn, got \"{}\"", text.where(), type);
  c.yarn = type == "yarn";
  if (c.yarn) DQ_CHECK(read_yarn(text, rope, c));
  if (!ministral) return {};
  DQ_TRY(c.llama_4_scaling_beta, rope.number("llama_4_scaling_beta", 0));
  if (std::fabs(c.llama_4_scaling_beta) > 1e3)
    return bad_input("[config] {}: expected llama_4_scaling_beta in -1000..1000, got {}", text.where(),
                     c.llama_4_scaling_beta);
  DQ_TRY(c.original_max_position_embeddings,
         rope.integer_in("original_max_position_embeddings", 1, kMaxPositions,
                         c.yarn ? c.original_max_position_embeddings : c.max_position_embeddings));
  return {};
}

}  // namespace

Result<void> read_sizes(const JsonObject& o, int64_t default_head_dim, Config& c) {
  DQ_TRY(c.vocab_size, o.integer_in("vocab_size", 1, kMaxVocab));
  DQ_TRY(c.hidden_size, o.integer_in("hidden_size", 1, kMaxWidth));
  DQ_TRY(c.intermediate_size, o.integer_in("intermediate_size", 1, 4 * kMaxWidth));
  DQ_TRY(c.num_hidden_layers, o.integer_in("num_hidden_layers", 1, kMaxLayers));
  DQ_TRY(c.num_attention_heads, o.integer_in("num_attention_heads", 1, kMaxHeads));
  DQ_TRY(c.num_key_value_heads, o.integer_in("num_key_value_heads", 1, c.num_attention_heads, c.num_attention_heads));
  if (c.num_attention_heads % c.num_key_value_heads != 0)
    return bad_input("[config] {}: expected num_attention_heads to be a multiple of num_key_value_heads, got {} and {}",
                     o.where(), c.num_attention_heads, c.num_key_value_heads);
  const int64_t head_dim = default_head_dim ? default_head_dim : c.hidden_size / c.num_attention_heads;
  if (!default_head_dim && !o.has("head_dim") && c.hidden_size % c.num_attention_heads != 0)
    return bad_input("[config] {}: expected head_dim, or hidden_size a multiple of num_attention_heads, got {} and {}",
                     o.where(), c.hidden_size, c.num_attention_heads);
  DQ_TRY(c.head_dim, o.integer_in("head_dim", 2, kMaxHeadDim, head_dim));
  if (c.head_dim % 2 != 0) return bad_input("[config] {}: expected an even head_dim, got {}", o.where(), c.head_dim);
  return {};
}

Result<Config> Config::parse(const Json& json, const std::string& where) {
  DQ_TRY(const JsonObject root, JsonObject::of(json, where));
  DQ_TRY(const JsonObject text, text_object(root));
  DQ_TRY(const std::string type, text.string("model_type"));
  if (type != "ministral3" && type != "mistral")
    return bad_input("[config] {}: expected the text model_type ministral3 or mistral, got \"{}\"", where, type);
  const bool ministral = type == "ministral3";
  DQ_CHECK(refuse_unsupported(root, text));

  Config c;
  DQ_CHECK(read_sizes(text, 0, c));
  DQ_TRY(c.max_position_embeddings,
         text.integer_in("max_position_embeddings", 1, kMaxPositions, ministral ? 262144 : 131072));
  DQ_CHECK(read_window(text, c));
  DQ_TRY(const double eps, text.number("rms_norm_eps", ministral ? 1e-5 : 1e-6));
  if (!(eps > 0 && eps < 1)) return bad_input("[config] {}: expected rms_norm_eps in (0, 1), got {}", where, eps);
  c.rms_norm_eps = static_cast<float>(eps);
  DQ_TRY(const bool outer_tie, root.boolean("tie_word_embeddings", false));
  DQ_TRY(c.tie_word_embeddings, text.boolean("tie_word_embeddings", outer_tie));
  DQ_CHECK(read_rope(text, ministral, c));

  const RopeTable rope = rope_table(c);
  const bool finite = std::all_of(rope.inv_freq.begin(), rope.inv_freq.end(), [](float f) { return std::isfinite(f); });
  if (!finite || !std::isfinite(rope.attention_factor) || !(rope.attention_factor > 0))
    return bad_input(
        "[config] {}: expected RoPE parameters that give finite frequencies and a positive attention factor, "
        "got attention factor {}",
        where, rope.attention_factor);
  return c;
}

Result<Config> Config::infer(const TensorSource& source) {
  const std::string where = source.path().string();
  constexpr std::string_view table = "embed_tokens.weight";
  const auto& all = source.tensors();
  const auto embed = std::find_if(all.begin(), all.end(), [&](const TensorInfo& t) { return t.name.ends_with(table); });
  if (embed == all.end())
    return bad_input("[text encoder] {}: expected config.json or a tensor named ...{}, got neither", where, table);
  const std::string prefix = embed->name.substr(0, embed->name.size() - table.size());
  auto rows = [&](std::string_view part) {
    const TensorInfo* t = source.find(prefix + layer_tensor(0, part));
    return t != nullptr && t->shape.size() == 2 ? t->shape[0] : 0;
  };
  int64_t layers = 0;
  while (layers < kMaxLayers && source.find(prefix + layer_tensor(layers, "input_layernorm")) != nullptr) ++layers;

  const bool matrix = embed->shape.size() == 2;
  Json j = {{"model_type", "ministral3"},
            {"vocab_size", matrix ? embed->shape[0] : 0},
            {"hidden_size", matrix ? embed->shape[1] : 0},
            {"intermediate_size", rows("mlp.gate_proj")},
            {"num_hidden_layers", layers},
            {"num_attention_heads", rows("self_attn.q_proj") / 128},
            {"num_key_value_heads", rows("self_attn.k_proj") / 128},
            {"head_dim", 128},
            {"rms_norm_eps", 1e-5},
            {"max_position_embeddings", 262144}};
  const bool has_head =
      std::any_of(all.begin(), all.end(), [](const TensorInfo& t) { return t.name.ends_with("lm_head.weight"); });
  j["tie_word_embeddings"] = !has_head;
  j["rope_parameters"] = {{"rope_type", "yarn"},
                          {"rope_theta", 1e6},
                          {"factor", 16.0},
                          {"beta_fast", 32.0},
                          {"beta_slow", 1.0},
                          {"mscale", 1.0},
                          {"mscale_all_dim", 1.0},
                          {"llama_4_scaling_beta", 0.1},
                          {"original_max_position_embeddings", 16384}};
  return parse(j, where + " (sizes read off its tensors, no config.json)");
}

}  // namespace danqing::mistral3
