#include "pipeline/settings.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "base/text.h"
#include "base/try.h"
#include "pipeline/prompt_enhancer.h"

namespace danqing {
namespace {

constexpr int kMaxSteps = 1000;
constexpr float kMaxGuidance = 1000.0f;

Result<void> check_side(const char* what, int value, int multiple, int most) {
  if (value >= multiple && value <= most && value % multiple == 0) return {};
  const int below = std::max(multiple, value / multiple * multiple);
  if (value > 0 && value <= most)
    return usage_error("[size] {} expected a multiple of {}, got {} (nearest: {} or {})", what, multiple, value, below,
                       below + multiple);
  return usage_error("[size] {} expected a multiple of {} from {} to {}, got {}", what, multiple, multiple, most,
                     value);
}

Result<void> check_prompts(const GenerateRequest& r) {
  if (r.prompts.empty()) return usage_error("[prompt] expected at least one prompt, got none");
  for (const auto* list : {&r.prompts, &r.negative_prompts, &r.revised_prompts})
    for (const std::string& p : *list) {
      if (p.size() > kMaxPromptBytes)
        return usage_error("[prompt] expected at most {} bytes, got {}", kMaxPromptBytes, p.size());
      if (p.find('\0') != std::string::npos)
        return usage_error("[prompt] expected text, got a NUL byte in '{}'", one_line(p, 60));
    }
  if (r.negative_prompts.size() > 1 && r.negative_prompts.size() != r.prompts.size())
    return usage_error("[negative_prompt] expected none, one, or one for each of the {} prompts, got {}",
                       r.prompts.size(), r.negative_prompts.size());
  if (!r.revised_prompts.empty() && r.revised_prompts.size() != r.prompts.size())
    return usage_error("[prompt] expected a revised prompt for each of the {} prompts, got {}", r.prompts.size(),
                       r.revised_prompts.size());
  if (r.images_per_prompt < 1)
    return usage_error("[batch] expected 1 or more pictures of a prompt, got {}", r.images_per_prompt);
  if (r.prompts.size() > static_cast<size_t>(kMaxImages / r.images_per_prompt))
    return usage_error("[batch] expected at most {} pictures in one request, got {} prompts x {}", kMaxImages,
                       r.prompts.size(), r.images_per_prompt);
  return {};
}

Result<std::vector<uint64_t>> resolve_seeds(const GenerateRequest& r, int images) {
  std::vector<uint64_t> seeds = r.seeds;
  if (seeds.empty()) seeds.push_back(std::random_device{}());
  if (seeds.size() == 1)
    for (int i = 1; i < images; ++i) seeds.push_back(seeds[0] + static_cast<uint64_t>(i));
  if (seeds.size() != static_cast<size_t>(images))
    return usage_error("[seed] expected one seed, or one for each of the {} pictures, got {}", images, r.seeds.size());
  return seeds;
}

Result<void> resolve_guidance_limits(const GenerateRequest& r, const ModelFamily& family, Settings& s) {
  s.cfg_normalization = r.cfg_normalization.value_or(0.0f);
  s.cfg_truncation = r.cfg_truncation.value_or(1.0f);
  if (!(s.cfg_normalization >= 0) || s.cfg_normalization > kMaxGuidance)
    return usage_error("[cfg_normalization] expected a number from 0 (off) to {:g}, got {}", kMaxGuidance,
                       s.cfg_normalization);
  if (!(s.cfg_truncation >= 0) || s.cfg_truncation > 1)
    return usage_error("[cfg_truncation] expected a number from 0 to 1 (never), got {}", s.cfg_truncation);
  const bool given = r.cfg_normalization || r.cfg_truncation;
  if (given && !family.limits_guidance())
    s.notes.push_back("cfg_normalization and cfg_truncation have no effect on this model");
  else if (given && !s.guided)
    s.notes.push_back("cfg_normalization and cfg_truncation have no effect without guidance");
  return {};
}

/// Where a picture to start from enters: its size, unless one is asked for, and the first step that is left of the
/// schedule, as diffusers' image-to-image pipelines count it.
Result<void> resolve_init_image(const GenerateRequest& r, const ModelFamily& family, Settings& s) {
  const Image& image = r.init_image;
  if (image.width == 0 && image.height == 0 && image.pixels.empty()) return {};
  const ModelInfo& info = family.info();
  if (!family.takes_image())
    return usage_error("[init_image] {}: this model's VAE has no encoder, so it starts from no picture", info.name);
  if (image.width < 1 || image.height < 1 ||
      image.pixels.size() != size_t{3} * static_cast<size_t>(image.width) * static_cast<size_t>(image.height))
    return usage_error("[init_image] expected 3*width*height bytes of pixels, got {} for {}x{}", image.pixels.size(),
                       image.width, image.height);
  if (!r.latents.empty()) return usage_error("[init_image] expected a picture or latents to start from, got both");
  if (!(r.strength > 0) || r.strength > 1)
    return usage_error("[strength] expected a number above 0, up to 1, got {}", r.strength);
  if (s.steps < 1) return usage_error("[steps] expected 1 or more for a run that starts from a picture, got 0");
  const int most = std::min(kMaxSide, info.max_side);
  const auto own = [&](int side) { return in_multiples(info, std::min(side, most)); };
  if (!r.width) s.width = own(image.width);
  if (!r.height) s.height = own(image.height);
  if (s.width != image.width || s.height != image.height)
    s.notes.push_back(
        fmt::format("the given picture was scaled from {}x{} to {}x{}", image.width, image.height, s.width, s.height));
  s.starts_from_image = true;
  s.first_step = static_cast<int>(s.steps - std::min(s.steps * r.strength, static_cast<double>(s.steps)));
  return {};
}

void add_notes(const GenerateRequest& r, const ModelInfo& info, Settings& s) {
  bool has_negative = false;
  for (const std::string& n : s.negative_prompts) has_negative |= !n.empty();
  if (has_negative && !s.guided)
    s.notes.push_back(fmt::format("the negative prompt has no effect at guidance {:g}", s.guidance_scale));
  if (r.enhancer == EnhancerMode::off && r.enhance.seed)
    s.notes.push_back("the enhancer's settings have no effect: it is off");
  for (const auto* list : {&r.prompts, &r.negative_prompts})
    for (const std::string& p : *list)
      if (valid_utf8_prefix(p) != p.size())
        s.notes.push_back(fmt::format("'{}' is not valid UTF-8; the wrong bytes count as U+FFFD", one_line(p, 60)));
  if (s.steps == 0) s.notes.push_back("0 steps: the picture is the decoded noise");
  if (!r.latents.empty() && !r.seeds.empty())
    s.notes.push_back("the seed has no effect on the noise: latents were given");
  const auto& sizes = info.defaults.suggested_sizes;
  if (!sizes.empty() && std::find(sizes.begin(), sizes.end(), std::pair{s.width, s.height}) == sizes.end()) {
    std::string list;
    for (const auto& [w, h] : sizes) list += fmt::format("{}{}x{}", list.empty() ? "" : ", ", w, h);
    s.notes.push_back(fmt::format("{}x{} is not one of the model's own sizes ({})", s.width, s.height, list));
  }
}

}  // namespace

int in_multiples(const ModelInfo& model, int side) {
  return std::max(1, side / model.size_multiple) * model.size_multiple;
}

Result<Settings> resolve(const GenerateRequest& r, const ModelFamily& family, bool is_cpu) {
  const ModelInfo& info = family.info();
  Settings s;
  DQ_CHECK(check_prompts(r));
  s.width = r.width ? r.width : info.defaults.width;
  s.height = r.height ? r.height : info.defaults.height;
  s.steps = r.num_inference_steps.value_or(info.defaults.num_inference_steps);
  if (s.steps < family.min_steps() || s.steps > kMaxSteps)
    return usage_error("[steps] expected {} to {}, got {}", family.min_steps(), kMaxSteps, s.steps);
  DQ_CHECK(resolve_init_image(r, family, s));
  const int most = std::min(kMaxSide, info.max_side);
  DQ_CHECK(check_side("width", s.width, info.size_multiple, most));
  DQ_CHECK(check_side("height", s.height, info.size_multiple, most));
  s.guidance_scale = r.guidance_scale.value_or(info.defaults.guidance_scale);
  if (!std::isfinite(s.guidance_scale) || std::fabs(s.guidance_scale) > kMaxGuidance)
    return usage_error("[guidance] expected a number from {:g} to {:g}, got {}", -kMaxGuidance, kMaxGuidance,
                       s.guidance_scale);
  s.guided = family.guidance_active(s.guidance_scale);
  DQ_CHECK(resolve_guidance_limits(r, family, s));
  s.scheduler = family.scheduler();
  if (r.shift) {
    if (!(*r.shift >= 1e-3f) || *r.shift > 100)
      return usage_error("[shift] expected a number from 0.001 to 100, got {}", *r.shift);
    s.scheduler.shift = static_cast<double>(*r.shift);
    if (s.scheduler.use_dynamic_shifting) {
      s.scheduler.use_dynamic_shifting = false;
      s.notes.push_back("the given shift replaces the scheduler's dynamic shifting");
    }
  }
  s.shift = static_cast<float>(s.scheduler.shift);
  DQ_TRY(s.sampler, parse_sampler(r.sampler));
  s.images = static_cast<int>(r.prompts.size()) * r.images_per_prompt;
  if (r.batch_size < 0) return usage_error("[batch_size] expected 0 (automatic) or more, got {}", r.batch_size);
  // On the CPU a batch saves nothing and costs memory; a card is better filled by a few pictures.
  s.batch_size = std::min(s.images, r.batch_size ? r.batch_size : is_cpu ? 1 : 4);
  if (r.enhancer == EnhancerMode::on && !info.has_prompt_enhancer)
    return usage_error("[enhance] {}: this model has no prompt enhancer (no pe and pe_tokenizer)", info.name);
  s.enhance =
      info.has_prompt_enhancer && r.revised_prompts.empty() &&
      (r.enhancer == EnhancerMode::on || (r.enhancer == EnhancerMode::automatic && info.defaults.prompt_enhancer));
  if (s.enhance) DQ_CHECK(check_enhance_options(r.enhance));
  DQ_TRY(s.seeds, resolve_seeds(r, s.images));
  s.negative_prompts = r.negative_prompts;
  if (s.negative_prompts.empty()) s.negative_prompts.push_back("");
  s.negative_prompts.resize(r.prompts.size(), s.negative_prompts[0]);
  const int64_t latents = element_count(family.latent_shape(s.width, s.height)) * s.images;
  if (!r.latents.empty() && static_cast<int64_t>(r.latents.size()) != latents)
    return usage_error("[latents] expected {} values, got {}", latents, r.latents.size());
  add_notes(r, info, s);
  return s;
}

}  // namespace danqing
