// config.json or tensor shapes -> Config.
#include <algorithm>

#include "base/try.h"
#include "models/qwen3/qwen3.h"

namespace danqing::qwen3 {
namespace {

/// Fields that mean another computation than ours: refuse instead of giving wrong features.
Result<void> refuse_unsupported(const JsonObject& o) {
  DQ_TRY(const std::string act, o.string("hidden_act", "silu"));
  if (act != "silu") return bad_input("[config] {}: expected hidden_act silu, got \"{}\"", o.where(), act);
  for (const char* key : {"attention_bias", "use_sliding_window"}) {
    DQ_TRY(const bool on, o.boolean(key, false));
    if (on) return bad_input("[config] {}: expected {} false, got true", o.where(), key);
  }
  if (const Json* types = o.get("layer_types"))
    if (!types->is_array() ||
        std::any_of(types->begin(), types->end(), [](const Json& t) { return t != "full_attention"; }))
      return bad_input("[config] {}: expected layer_types all full_attention, got {}", o.where(),
                       dump_json(*types).substr(0, 80));
  if (o.has("quantization_config"))
    return bad_input(
        "[config] {}: quantization_config (weights with separate scales) is not supported; use the bf16 "
        "checkpoint or a GGUF-type quantisation",
        o.where());
  return {};
}

/// RoPE as new configs (rope_parameters) and old ones (rope_theta at the top, rope_scaling or null) write it.
Result<double> read_theta(const JsonObject& o) {
  const char* key = o.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  const Json none = Json::object();
  DQ_TRY(const JsonObject rope, o.has(key) ? o.object(key) : JsonObject::of(none, o.where()));
  DQ_TRY(const std::string old_type, rope.string("type", "default"));
  DQ_TRY(const std::string type, rope.string("rope_type", old_type));
  if (type != "default") return bad_input("[config] {}: expected rope_type default, got \"{}\"", o.where(), type);
  DQ_TRY(const double theta, (rope.has("rope_theta") ? rope : o).number("rope_theta"));
  if (!(theta > 1 && theta <= 1e15))
    return bad_input("[config] {}: expected rope_theta in (1, 1e15], got {}", o.where(), theta);
  return theta;
}

}  // namespace

Result<Config> parse_config(const Json& json, const std::string& where) {
  DQ_TRY(const JsonObject o, JsonObject::of(json, where));
  DQ_TRY(const std::string type, o.string("model_type"));
  if (type != "qwen3") return bad_input("[config] {}: expected model_type qwen3, got \"{}\"", where, type);
  DQ_CHECK(refuse_unsupported(o));
  Config c;
  c.qk_norm = true;
  DQ_CHECK(mistral3::read_sizes(o, 128, c));
  DQ_TRY(c.max_position_embeddings, o.integer_in("max_position_embeddings", 1, mistral3::kMaxPositions, 40960));
  DQ_TRY(const double eps, o.number("rms_norm_eps", 1e-6));
  if (!(eps > 0 && eps < 1)) return bad_input("[config] {}: expected rms_norm_eps in (0, 1), got {}", where, eps);
  c.rms_norm_eps = static_cast<float>(eps);
  DQ_TRY(c.tie_word_embeddings, o.boolean("tie_word_embeddings", false));
  DQ_TRY(c.rope_theta, read_theta(o));
  return c;
}

Result<Config> infer_config(const TensorSource& source) {
  const std::string where = source.path().string();
  constexpr std::string_view table = "embed_tokens.weight";
  const auto& all = source.tensors();
  const auto embed = std::find_if(all.begin(), all.end(), [&](const TensorInfo& t) { return t.name.ends_with(table); });
  if (embed == all.end())
    return bad_input("[text encoder] {}: expected config.json or a tensor named ...{}, got neither", where, table);
  const std::string prefix = embed->name.substr(0, embed->name.size() - table.size());
  const auto layer = [&](int64_t i, std::string_view part) {
    return source.find(prefix + mistral3::layer_tensor(i, part));
  };
  const auto rows = [&](std::string_view part) {
    const TensorInfo* t = layer(0, part);
    return t && !t->shape.empty() ? t->shape[0] : 0;
  };
  int64_t layers = 0;
  while (layers < mistral3::kMaxLayers && layer(layers, "input_layernorm")) ++layers;
  const bool matrix = embed->shape.size() == 2;
  const int64_t head_dim = rows("self_attn.q_norm");
  const auto heads = [&](std::string_view part) {
    return head_dim > 0 && rows(part) % head_dim == 0 ? rows(part) / head_dim : 0;
  };
  const Json j = {{"model_type", "qwen3"},
                  {"vocab_size", matrix ? embed->shape[0] : 0},
                  {"hidden_size", matrix ? embed->shape[1] : 0},
                  {"intermediate_size", rows("mlp.gate_proj")},
                  {"num_hidden_layers", layers},
                  {"num_attention_heads", heads("self_attn.q_proj")},
                  {"num_key_value_heads", heads("self_attn.k_proj")},
                  {"head_dim", head_dim},
                  {"rms_norm_eps", 1e-6},
                  {"max_position_embeddings", 40960},
                  {"tie_word_embeddings", true},
                  {"rope_theta", 1e6}};
  return parse_config(j, where + " (sizes read off its tensors, no config.json)");
}

}  // namespace danqing::qwen3
