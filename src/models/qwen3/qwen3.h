// Qwen3 text stacks: what models/mistral3 computes, with an RMS norm over each query and key head, plain RoPE and other
// names. Only the config and the names are here.
#pragma once
#include <memory>
#include <string>

#include "models/mistral3/model.h"

namespace danqing::qwen3 {

using Config = mistral3::Config;
using TextEncoder = mistral3::TextEncoder;

/// Reads config.json of a Qwen3Model or Qwen3ForCausalLM. Error bad_input names `where` and the field: sizes out of
/// bounds, and features that would change the result and are not computed (other activations, biases, RoPE scaling,
/// sliding windows, quantised checkpoints with scales).
Result<Config> parse_config(const Json& json, const std::string& where);
/// For a bare file without config.json: vocabulary, widths, layers and heads off the tensors' shapes, whatever their
/// prefix. The rest is what the released models have: eps 1e-6, theta 1e6,
/// 40960 positions. The file must hold all layers (features leave out the last one).
Result<Config> infer_config(const TensorSource& source);
/// Names in files: prefixes of exporters and of single-file checkpoints.
const NameMap& name_map();
/// The config of the files, from config.json or the tensors, with the names.
Result<mistral3::Architecture> architecture_of(const ComponentFiles& files);

/// hidden_states[-2] (see mistral3::TextEncoder). Errors: bad_input, does_not_fit, cancelled.
Result<std::unique_ptr<TextEncoder>> load_text_encoder(std::shared_ptr<Device> device, const ComponentFiles& files,
                                                       const WeightPolicy& policy, const LoadProgress& progress = {});

}  // namespace danqing::qwen3
