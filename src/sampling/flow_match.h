// Flow-matching schedules and steps (Lipman et al. 2023; Esser et al. 2024), as diffusers' FlowMatchEulerDiscreteScheduler
// computes them. Plain arrays; no device.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "danqing/result.h"
#include "sampling/random.h"

namespace danqing {

struct FlowMatchConfig {
  double shift = 1.0;
  bool use_dynamic_shifting = false;
  bool exponential_time_shift = true;        ///< time_shift_type: "exponential" or "linear"
  double base_shift = 0.5, max_shift = 1.15;
  int64_t base_image_seq_len = 256, max_image_seq_len = 4096;
  int64_t num_train_timesteps = 1000;
  std::optional<double> shift_terminal;
  bool invert_sigmas = false, use_karras_sigmas = false, use_exponential_sigmas = false, use_beta_sigmas = false;

  /// From scheduler_config.json. Error for another _class_name, and for options that this build cannot compute.
  static Result<FlowMatchConfig> parse(const Json& json, const std::string& where);
};

struct Schedule {
  std::vector<float> sigmas;      ///< num_inference_steps + 1 values, the last is 0
  std::vector<float> timesteps;   ///< num_inference_steps values, 1000 * sigma
};

/// How a pipeline spaces the sigmas before the shift.
enum class SigmaSpacing {
  one_to_zero,      ///< linspace(1, 0, N+1) without the last (ERNIE-Image)
  one_to_inverse_n, ///< linspace(1, 1/N, N) (Z-Image)
};

/// num_inference_steps 0 gives an empty schedule (sigmas = {0}); negative or more than 10000 is a usage error.
/// `image_seq_len` feeds dynamic shifting. `sigmas`: given by the caller instead of the spacing.
Result<Schedule> make_schedule(const FlowMatchConfig& config, int num_inference_steps, SigmaSpacing spacing,
                               int64_t image_seq_len, std::span<const float> sigmas = {});

/// mu of dynamic shifting: linear in the number of image tokens.
double dynamic_shift_mu(const FlowMatchConfig& config, int64_t image_seq_len);

/// latents <- latents + (sigma_next - sigma) * prediction, with the roundings of the working dtype as torch makes them
/// (bf16: step size, product and sum are rounded; see the fixtures page, ERNIE 15). latents, prediction: equal sizes.
void euler_step(std::span<float> latents, std::span<const float> prediction, float sigma, float sigma_next, WorkType type);

/// Classifier-free guidance (Ho & Salimans 2022): out = uncond + scale*(cond - uncond), each operation rounded to `type`.
void guide(std::span<const float> uncond, std::span<const float> cond, float scale, std::span<float> out, WorkType type);

/// The timestep as a network of that dtype receives it (bf16 rounds 987.5 to 988).
float timestep_as(float timestep, WorkType type);

/// Solvers by name. `euler` is the pipelines' own and exact; `heun` is second order (two network calls a step).
enum class Sampler { euler, heun };
Result<Sampler> parse_sampler(std::string_view name);
std::string_view name(Sampler s);

/// Drives a solver: the pipeline supplies the network and gets each step's latents.
struct SamplerCallbacks {
  /// Guided prediction for `latents` at `sigma` (timestep 1000*sigma). Called once (euler) or twice (heun) a step.
  std::function<Result<std::vector<float>>(std::span<const float> latents, float sigma)> predict;
  /// After each step: index from 0, latents after it. An error (cancelled) stops the run.
  std::function<Result<void>(int step, std::span<const float> latents)> after_step;
};
Result<void> run_sampler(Sampler sampler, const Schedule& schedule, std::vector<float>& latents, WorkType type,
                         const SamplerCallbacks& callbacks);

}  // namespace danqing
