#include <algorithm>
#include <cmath>

#include "base/try.h"
#include "sampling/flow_match.h"

namespace danqing {
namespace {

Result<std::vector<float>> predict(const SamplerCallbacks& callbacks, std::span<const float> latents, float sigma,
                                   size_t step, size_t steps) {
  DQ_TRY(std::vector<float> prediction, callbacks.predict(latents, sigma));
  if (prediction.size() != latents.size())
    return fail(ErrorCode::failed, "[denoise] step {}: expected a prediction of {} values, got {}", step + 1,
                latents.size(), prediction.size());
  if (!std::all_of(prediction.begin(), prediction.end(), [](float x) { return std::isfinite(x); }))
    return fail(ErrorCode::failed,
                "[denoise] step {} of {}: expected finite values from the network, got NaN or Inf: damaged weights, or "
                "values beyond the dtype (--dtype f32 helps then)",
                step + 1, steps);
  return prediction;
}

}  // namespace

void euler_step(std::span<float> latents, std::span<const float> prediction, float sigma, float sigma_next,
                WorkType type) {
  const float step = round_to(sigma_next - sigma, type);
  const size_t n = std::min(latents.size(), prediction.size());
  for (size_t i = 0; i < n; ++i) latents[i] = round_to(latents[i] + round_to(step * prediction[i], type), type);
}

void guide(std::span<const float> uncond, std::span<const float> cond, float scale, std::span<float> out,
           WorkType type) {
  const size_t n = std::min({uncond.size(), cond.size(), out.size()});
  for (size_t i = 0; i < n; ++i) {
    const float direction = round_to(cond[i] - uncond[i], type);
    out[i] = round_to(uncond[i] + round_to(scale * direction, type), type);
  }
}

float timestep_as(float timestep, WorkType type) { return round_to(timestep, type); }

Result<Sampler> parse_sampler(std::string_view text) {
  for (const Sampler s : {Sampler::euler, Sampler::heun})
    if (text == name(s)) return s;
  return usage_error("[sampler] expected euler or heun, got '{}'", text);
}

std::string_view name(Sampler s) { return s == Sampler::heun ? "heun" : "euler"; }

Result<void> run_sampler(Sampler sampler, const Schedule& schedule, std::vector<float>& latents, WorkType type,
                         const SamplerCallbacks& callbacks) {
  const std::vector<float>& sigmas = schedule.sigmas;
  if (sigmas.empty() || !std::all_of(sigmas.begin(), sigmas.end(), [](float s) { return std::isfinite(s); }))
    return usage_error("[sampler] expected a schedule of finite sigmas, got {}",
                       sigmas.empty() ? "none" : "NaN or Inf");
  if (!callbacks.predict) return fail(ErrorCode::failed, "[sampler] expected a network to call, got none");
  for (size_t i = 0; i + 1 < sigmas.size(); ++i) {
    const float sigma = sigmas[i], next = sigmas[i + 1];
    DQ_TRY(std::vector<float> slope, predict(callbacks, latents, sigma, i, sigmas.size() - 1));
    if (sampler == Sampler::heun && next != 0) {
      std::vector<float> ahead = latents;
      euler_step(ahead, slope, sigma, next, type);
      DQ_TRY(const std::vector<float> slope_ahead, predict(callbacks, ahead, next, i, sigmas.size() - 1));
      // The mean keeps f32 until the step rounds once: a half-precision mean would cost what the second call gained.
      for (size_t k = 0; k < latents.size(); ++k)
        latents[k] = round_to(latents[k] + (next - sigma) * (0.5f * (slope[k] + slope_ahead[k])), type);
    } else {
      euler_step(latents, slope, sigma, next, type);
    }
    if (callbacks.after_step) DQ_CHECK(callbacks.after_step(static_cast<int>(i), latents));
  }
  return {};
}

}  // namespace danqing
