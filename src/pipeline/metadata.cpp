#include "pipeline/metadata.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"

namespace danqing {

std::string_view name(ComputeType type) {
  switch (type) {
    case ComputeType::f32: return "f32";
    case ComputeType::bf16: return "bf16";
    case ComputeType::f16: return "f16";
    case ComputeType::automatic: break;
  }
  return "auto";
}

namespace {

/// Formats hold text without NUL; a language model may write one.
std::string without_nul(std::string text) {
  text.erase(std::remove(text.begin(), text.end(), '\0'), text.end());
  return text;
}

}  // namespace

ImageMetadata make_metadata(const GeneratedImage& image, const Settings& s, const ModelInfo& model,
                            const GenerateRequest& request, ComputeType compute_type) {
  const bool revised = image.revised_prompt != image.prompt;
  std::string text = image.revised_prompt;
  if (!image.negative_prompt.empty()) text += "\nNegative prompt: " + image.negative_prompt;
  text += fmt::format("\nSteps: {}, Sampler: {}, CFG scale: {:g}, Seed: {}, Size: {}x{}, Model: {}, Shift: {:g}",
                      s.steps, s.sampler == Sampler::euler ? "Euler" : "Heun", s.guidance_scale, image.seed, s.width,
                      s.height, model.name, s.shift);
  if (s.starts_from_image) text += fmt::format(", Denoising strength: {:g}", request.strength);
  if (revised) text += ", Original prompt: " + dump_json(Json(image.prompt));
  text += fmt::format(", Version: danqing {}", version());

  Json j;
  j["version"] = std::string(version());
  j["model"] = model.name;
  j["pipeline"] = model.pipeline_class;
  j["prompt"] = image.prompt;
  if (revised || s.enhance || !request.revised_prompts.empty()) j["revised_prompt"] = image.revised_prompt;
  j["negative_prompt"] = image.negative_prompt;
  j["width"] = s.width;
  j["height"] = s.height;
  j["num_inference_steps"] = s.steps;
  j["guidance_scale"] = s.guidance_scale;
  if (s.cfg_normalization > 0) j["cfg_normalization"] = s.cfg_normalization;
  if (s.cfg_truncation < 1) j["cfg_truncation"] = s.cfg_truncation;
  j["shift"] = s.shift;
  j["sampler"] = std::string(name(s.sampler));
  j["seed"] = image.seed;
  j["generator"] = request.cuda_noise ? "cuda" : "cpu";
  if (request.one_stream) j["one_stream"] = true;
  if (!request.latents.empty()) j["latents"] = "given";
  if (s.starts_from_image) {
    j["strength"] = request.strength;
    j["init_image"] = {{"width", request.init_image.width}, {"height", request.init_image.height}};
  }
  j["dtype"] = std::string(name(compute_type));
  if (s.enhance) {
    const EnhanceOptions& e = request.enhance;
    const auto first = static_cast<size_t>(image.index / request.images_per_prompt * request.images_per_prompt);
    j["prompt_enhancer"] = {{"temperature", e.temperature},
                            {"top_p", e.top_p},
                            {"top_k", e.top_k},
                            {"seed", e.seed.value_or(s.seeds[first])},
                            {"max_new_tokens", e.max_new_tokens}};
  }
  j["index"] = image.index;
  return {{"parameters", without_nul(std::move(text))}, {"danqing", dump_json(j)}};
}

}  // namespace danqing
