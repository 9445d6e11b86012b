#include "models/qwen3/qwen3.h"

#include "base/try.h"

namespace danqing::qwen3 {

const NameMap& name_map() {
  static const NameMap map{
      .prefixes = {"model.", "", "text_encoder.", "text_encoders.", "qwen3_4b.transformer.model.",
                   "text_encoders.qwen3_4b.transformer.model.", "language_model.", "model.language_model."},
      .aliases = {{"blk.", "layers."},
                  {"token_embd.", "embed_tokens."},
                  {"attn_norm.", "input_layernorm."},
                  {"attn_q.", "self_attn.q_proj."},
                  {"attn_k.", "self_attn.k_proj."},
                  {"attn_v.", "self_attn.v_proj."},
                  {"attn_q_norm.", "self_attn.q_norm."},
                  {"attn_k_norm.", "self_attn.k_norm."},
                  {"attn_output.", "self_attn.o_proj."},
                  {"ffn_norm.", "post_attention_layernorm."},
                  {"ffn_gate.", "mlp.gate_proj."},
                  {"ffn_up.", "mlp.up_proj."},
                  {"ffn_down.", "mlp.down_proj."},
                  {"output_norm.", "norm."}},
      .ignored = {"lm_head.", "output.", "rope_freqs.", "logit_scale"},
  };
  return map;
}

Result<mistral3::Architecture> architecture_of(const ComponentFiles& files) {
  if (!files.config && !files.source)
    return bad_input("[text encoder] {}: expected a config.json or a weights file, got neither", files.path.string());
  DQ_TRY(Config config, files.config ? parse_config(*files.config, (files.path / "config.json").string())
                                     : infer_config(*files.source));
  return mistral3::Architecture{std::move(config), name_map()};
}

Result<std::unique_ptr<TextEncoder>> load_text_encoder(std::shared_ptr<Device> device, const ComponentFiles& files,
                                                       const WeightPolicy& policy, const LoadProgress& progress) {
  DQ_TRY(const mistral3::Architecture architecture, architecture_of(files));
  return TextEncoder::load_as(std::move(device), files, architecture, false, policy, progress);
}

}  // namespace danqing::qwen3
