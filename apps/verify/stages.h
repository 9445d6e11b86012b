// The groups of cases. Each finds its cases in the golden files' keys and adds them to the suite.
#pragma once
#include <filesystem>
#include <span>

#include "verify/model.h"

namespace danqing::app::verify {

// Of one model directory, for its golden file(s) of that name.
void add_tokens(const Model& m);
void add_text(const Model& m, const std::string& file);  ///< text_f32, text_bf16
void add_query_scale(const Model& m);                    ///< text_llama4_scale
void add_transformer(const Model& m);                    ///< dit_f32
void add_transformer_bf16_weights(const Model& m);       ///< dit_bf16weights_f32math
void add_transformer_bf16(const Model& m);               ///< dit_bf16
void add_scheduler(const Model& m);
void add_init_latents(const Model& m);
void add_runs(const Model& m, const std::vector<std::string>& files);  ///< run_NAME_f32, run_NAME_bf16, img2img
void add_vae(const Model& m);
void add_enhancer(const Model& m);                               ///< pe
void add_errors(const Model& m);                                 ///< errors.json
void add_adapters(const Model& m);                               ///< lora_out, from lora*.safetensors
void add_adapter_file(const Model& m, const std::string& file);  ///< lora, lora_TAG: what is in it
void add_z_image_tokens(const Model& m);
void add_z_image_transformer(const Model& m, const std::string& file);  ///< dit_f32, dit_bf16

// Of the tree.
void add_gguf(Suite& suite, const std::filesystem::path& directory);
void add_random(Suite& suite, const std::filesystem::path& stem);  ///< rng/rng
void add_units(Suite& suite, const std::filesystem::path& stem);   ///< units/units
void add_tokenizers(Suite& suite, const std::filesystem::path& directory);

/// Everything in the tree: model directories and the four folders. Error bad_input if it is no directory or holds
/// nothing.
Result<void> add_tree(Suite& suite);

/// Inputs of a transformer case X of dit_f32: X.in.latents, .timestep, .text (cropped to .text_lens).
struct TransformerInputs {
  Tensor latents;
  std::vector<Tensor> text;
  std::vector<float> timesteps;
};
Result<TransformerInputs> transformer_inputs(Golden& dit, const std::string& name);
/// The same of Z-Image's: X.in.t, X.in.latents.I, X.in.cap.I.
struct ZImageInputs {
  std::vector<Tensor> latents, captions;
  std::vector<float> times;
};
Result<ZImageInputs> z_image_inputs(Golden& dit, const std::string& name);
/// The numbers of a tensor that holds a noise draw: "f32" or "bf16" at the end of a key.
Tolerance noise_tolerance(bool bf16, const Tensor& golden);
/// 1 - sigma, which is small where sigma is near 1: sigma's own last place is what counts.
Tolerance model_time_tolerance();

}  // namespace danqing::app::verify
