// What a bare file holds, told from its tensor names. One row a kind, the special ones before the general ones.
#include "checkpoint/kinds.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint.h"

namespace danqing {
namespace {

struct Rule {
  TensorKind kind;
  std::vector<std::string_view> all;   // each must be part of some tensor name, from the beginning of a name part
  std::vector<std::string_view> none;  // these of none
};

const std::vector<Rule>& rules() {
  static const std::vector<Rule> table = {
      {{"ZImagePipeline", "transformer", "z_image transformer"},
       {"noise_refiner.0.", "context_refiner.0.", "cap_pad_token"},
       {}},
      {{"ErnieImagePipeline", "transformer", "ernie_image transformer"},
       {"layers.0.self_attention.to_q.", "layers.0.adaLN_sa_ln.", "adaLN_modulation.1."},
       {}},
      {{"ErnieImagePipeline", "vae", "flux2 vae"}, {"bn.running_mean", "decoder.conv_in.", "decoder.conv_out."}, {}},
      {{"", "vae", "AutoencoderKL"}, {"decoder.conv_in.", "decoder.conv_out."}, {}},
      {{"ErnieImagePipeline", "text_encoder", "mistral3 text encoder with vision tower"},
       {"layers.0.self_attn.q_proj.", "embed_tokens.", "vision_tower."},
       {"layers.0.self_attn.q_norm."}},
      {{"ZImagePipeline", "text_encoder", "qwen3 text encoder"},
       {"layers.0.self_attn.q_proj.", "embed_tokens.", "layers.0.self_attn.q_norm."},
       {"vision_tower.", "visual."}},
      {{"ErnieImagePipeline", "pe", "mistral causal language model"},
       {"layers.0.self_attn.q_proj.", "embed_tokens.", "lm_head."},
       {"layers.0.self_attn.q_norm.", "layers.0.self_attn.q_proj.bias"}},
      {{"ErnieImagePipeline", "text_encoder",
        "mistral language model (text encoder, or prompt enhancer with tied output)"},
       {"layers.0.self_attn.q_proj.", "embed_tokens."},
       {"layers.0.self_attn.q_norm.", "layers.0.self_attn.q_proj.bias", "visual."}},
      {{"", "text_encoder", "language model in llama.cpp's names"}, {"blk.0.attn_q.", "token_embd."}, {}},
  };
  return table;
}

// Adapters hold the names of the model they belong to, so they are looked for first.
constexpr std::string_view kAdapterParts[] = {"lora_A.", "lora_B.", "lora_down.", "lora_up.", "lora_unet_", "lora_te_"};

// The prefixes under which one file may hold several components.
bool part_begins(std::string_view name, std::string_view part) {
  for (size_t i = name.find(part); i != std::string_view::npos; i = name.find(part, i + 1))
    if (i == 0 || name[i - 1] == '.') return true;
  return false;
}

bool some(const TensorSource& source, std::string_view part) {
  return std::any_of(source.tensors().begin(), source.tensors().end(),
                     [&](const TensorInfo& t) { return part_begins(t.name, part); });
}

}  // namespace

std::optional<TensorKind> kind_of_class(std::string_view class_name) {
  static const std::vector<std::pair<std::string_view, TensorKind>> table = {
      {"ErnieImageTransformer2DModel", {"ErnieImagePipeline", "transformer", "ernie_image transformer"}},
      {"ZImageTransformer2DModel", {"ZImagePipeline", "transformer", "z_image transformer"}},
      {"AutoencoderKLFlux2", {"ErnieImagePipeline", "vae", "flux2 vae"}},
      {"AutoencoderKL", {"", "vae", "AutoencoderKL"}},
      {"Mistral3Model", {"ErnieImagePipeline", "text_encoder", "mistral3 text encoder"}},
      {"Mistral3ForConditionalGeneration", {"ErnieImagePipeline", "text_encoder", "mistral3 text encoder"}},
      {"Ministral3Model", {"ErnieImagePipeline", "text_encoder", "mistral text encoder"}},
      {"MistralModel", {"ErnieImagePipeline", "text_encoder", "mistral text encoder"}},
      {"Ministral3ForCausalLM", {"ErnieImagePipeline", "pe", "mistral causal language model"}},
      {"MistralForCausalLM", {"ErnieImagePipeline", "pe", "mistral causal language model"}},
      {"Qwen3Model", {"ZImagePipeline", "text_encoder", "qwen3 text encoder"}},
      {"Qwen3ForCausalLM", {"ZImagePipeline", "text_encoder", "qwen3 text encoder"}},
  };
  for (const auto& [name, kind] : table)
    if (name == class_name) return kind;
  return std::nullopt;
}

std::string class_of_config(const Json& config) {
  if (!config.is_object()) return "";
  if (const auto it = config.find("_class_name"); it != config.end() && it->is_string()) return it->get<std::string>();
  const auto it = config.find("architectures");
  const bool has = it != config.end() && it->is_array() && !it->empty() && it->front().is_string();
  return has ? it->front().get<std::string>() : std::string();
}

const std::vector<std::string>& known_pipelines() {
  static const std::vector<std::string> names = {"ErnieImagePipeline", "ZImagePipeline"};
  return names;
}

std::vector<TensorKind> recognise_all(const TensorSource& source) {
  for (std::string_view part : kAdapterParts)
    if (some(source, part)) return {{"", "lora", "LoRA adapter"}};
  std::vector<TensorKind> found;
  for (const Rule& r : rules()) {
    const bool role_taken =
        std::any_of(found.begin(), found.end(), [&](const TensorKind& k) { return k.role == r.kind.role; });
    const auto present = [&](std::string_view part) { return some(source, part); };
    if (!role_taken && std::all_of(r.all.begin(), r.all.end(), present) &&
        std::none_of(r.none.begin(), r.none.end(), present))
      found.push_back(r.kind);
  }
  return found;
}

std::optional<TensorKind> recognise(const TensorSource& source) {
  const auto found = recognise_all(source);
  if (found.empty()) return std::nullopt;
  return found[0];
}

}  // namespace danqing
