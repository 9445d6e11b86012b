#include "bench/presets.h"

#include <filesystem>

#include "base/try.h"
#include "bench/stages.h"
#include "models/ernie_image/transformer.h"
#include "models/mistral3/config.h"
#include "models/qwen3/qwen3.h"
#include "models/vae/vae.h"
#include "models/z_image/transformer.h"

namespace danqing::app {
namespace {

// Sizes of the published ERNIE-Image configs.
constexpr const char* kErnie8b = R"({
  "transformer": {"_class_name": "ErnieImageTransformer2DModel", "hidden_size": 4096, "num_attention_heads": 32, "num_layers": 36,
    "ffn_hidden_size": 12288, "in_channels": 128, "out_channels": 128, "patch_size": 1, "text_in_dim": 3072,
    "rope_axes_dim": [32, 48, 48], "rope_theta": 256, "eps": 1e-6, "qk_layernorm": true},
  "text_encoder": {"model_type": "mistral3", "text_config": {"model_type": "ministral3", "hidden_size": 3072,
    "intermediate_size": 9216, "num_hidden_layers": 26, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
    "vocab_size": 131072, "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": true,
    "max_position_embeddings": 262144, "rope_parameters": {"rope_type": "yarn", "rope_theta": 1000000.0, "factor": 16.0,
    "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 16384,
    "llama_4_scaling_beta": 0.1}}},
  "pe": {"model_type": "ministral3", "architectures": ["Ministral3ForCausalLM"], "hidden_size": 3072,
    "intermediate_size": 9216, "num_hidden_layers": 26, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
    "vocab_size": 131072, "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": true, "eos_token_id": 2,
    "max_position_embeddings": 262144, "rope_parameters": {"rope_type": "yarn", "rope_theta": 1000000.0, "factor": 16.0,
    "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 16384,
    "llama_4_scaling_beta": 0.1}},
  "vae": {"_class_name": "AutoencoderKLFlux2", "in_channels": 3, "out_channels": 3, "latent_channels": 32,
    "block_out_channels": [128, 256, 512, 512], "layers_per_block": 2, "norm_num_groups": 32, "patch_size": [2, 2],
    "act_fn": "silu", "use_quant_conv": true, "use_post_quant_conv": true, "mid_block_add_attention": true}
})";

// Sizes of the published Z-Image and Z-Image-Turbo configs, which differ in nothing here.
constexpr const char* kZImage6b = R"({
  "transformer": {"_class_name": "ZImageTransformer2DModel", "all_patch_size": [2], "all_f_patch_size": [1], "in_channels": 16,
    "dim": 3840, "n_layers": 30, "n_refiner_layers": 2, "n_heads": 30, "n_kv_heads": 30, "norm_eps": 1e-5, "qk_norm": true,
    "cap_feat_dim": 2560, "rope_theta": 256.0, "t_scale": 1000.0, "axes_dims": [32, 48, 48], "axes_lens": [1536, 512, 512]},
  "text_encoder": {"model_type": "qwen3", "hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 36,
    "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0, "hidden_act": "silu", "tie_word_embeddings": true, "max_position_embeddings": 40960},
  "vae": {"_class_name": "AutoencoderKL", "in_channels": 3, "out_channels": 3, "latent_channels": 16,
    "block_out_channels": [128, 256, 512, 512], "layers_per_block": 2, "norm_num_groups": 32, "act_fn": "silu",
    "scaling_factor": 0.3611, "shift_factor": 0.1159, "use_quant_conv": false, "use_post_quant_conv": false,
    "mid_block_add_attention": true}
})";

constexpr std::pair<const char*, const char*> kPresets[] = {{"ernie-8b", kErnie8b}, {"z-image-6b", kZImage6b}};

}  // namespace

Result<std::map<std::string, Json>> load_configs(const std::string& name) {
  std::map<std::string, Json> configs;
  for (const auto& [preset, text] : kPresets) {
    if (name != preset) continue;
    DQ_TRY(const Json all, parse_json(text, preset));
    for (const auto& [role, config] : all.items()) configs[role] = config;
    return configs;
  }
  const std::filesystem::path dir(name);
  std::error_code ec;
  for (const char* role : {"transformer", "text_encoder", "pe", "vae"}) {
    const std::filesystem::path file = dir / role / "config.json";
    if (!std::filesystem::is_regular_file(file, ec)) continue;
    DQ_TRY(configs[role], read_json(file));
  }
  if (configs.empty())
    return usage_error(
        "[--config] expected ernie-8b, z-image-6b, or a directory with transformer/config.json and others, got '{}'",
        name);
  return configs;
}

Result<std::vector<TensorSpec>> specs_of(const std::string& role, const Json& config) {
  if (role == "transformer" && is_z_image(&config, nullptr)) {
    DQ_TRY(const auto c, z_image::Config::parse(config, role));
    return z_image::tensor_table(c, false);
  }
  if (role == "text_encoder" && is_z_image(&config, nullptr)) {
    DQ_TRY(const auto c, qwen3::parse_config(config, role));
    return mistral3::tensor_table(c, c.num_hidden_layers, false, false);
  }
  if (role == "transformer") {
    DQ_TRY(const auto c, ernie_image::Config::parse(config, role));
    return ernie_image::tensor_table(c);
  }
  if (role == "vae") {
    DQ_TRY(const auto c, vae::Config::parse(config, role));
    return vae::tensor_table(c, vae::Part::both);
  }
  DQ_TRY(const auto c, mistral3::Config::parse(config, role));
  return mistral3::tensor_table(c, c.num_hidden_layers, role == "pe", role == "pe");
}

}  // namespace danqing::app
