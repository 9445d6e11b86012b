// Flow-matching schedules and steps (Lipman et al. 2023; Esser et al. 2024), as diffusers'
// FlowMatchEulerDiscreteScheduler computes them. Plain arrays; no device. Pure functions; any number of threads.
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
  bool exponential_time_shift = true;  ///< time_shift_type: "exponential" or "linear"
  double base_shift = 0.5, max_shift = 1.15;
  int64_t base_image_seq_len = 256, max_image_seq_len = 4096;
  int64_t num_train_timesteps = 1000;
  std::optional<double> shift_terminal;  ///< the last sigma before 0 is stretched to this; 0 counts as absent
  bool invert_sigmas = false, use_karras_sigmas = false, use_exponential_sigmas = false, use_beta_sigmas = false;

  /// From scheduler_config.json. Error for another _class_name, values out of range, and options that cannot be
  /// computed (stochastic_sampling, two sigma spacings at once).
  static Result<FlowMatchConfig> parse(const Json& json, const std::string& where);
};

struct Schedule {
  std::vector<float> sigmas;     ///< num_inference_steps + 1 values, the last is 0 (1 with invert_sigmas)
  std::vector<float> timesteps;  ///< num_inference_steps values, num_train_timesteps * sigma
};

/// How a pipeline spaces the sigmas before the shift.
enum class SigmaSpacing {
  one_to_zero,       ///< linspace(1, 0, N+1) without the last (ERNIE-Image)
  one_to_inverse_n,  ///< linspace(1, 1/N, N) (Z-Image)
};

/// Equal to diffusers bit for bit, f32, in its order: spacing (or the given sigmas), shift (static, or dynamic from
/// `image_seq_len`), stretch to shift_terminal, then karras (Karras et al. 2022) / exponential / beta (Lee et al. 2024)
/// between the ends, which are computed in f64. num_inference_steps 0 gives an empty schedule (sigmas = {0}); negative
/// or more than 10000 is a usage error. `sigmas`: num_inference_steps values in (0, 1] given by the caller instead of
/// the spacing; they are shifted too.
Result<Schedule> make_schedule(const FlowMatchConfig& config, int num_inference_steps, SigmaSpacing spacing,
                               int64_t image_seq_len, std::span<const float> sigmas = {});

/// mu of dynamic shifting: linear in the number of image tokens, extrapolated on both sides.
double dynamic_shift_mu(const FlowMatchConfig& config, int64_t image_seq_len);

/// latents <- latents + (sigma_next - sigma) * prediction, with the roundings of the working dtype as torch makes them
/// (bf16, f16: step size, product and sum are rounded). latents, prediction: equal sizes.
void euler_step(std::span<float> latents, std::span<const float> prediction, float sigma, float sigma_next,
                WorkType type);

/// Classifier-free guidance (Ho & Salimans 2022): out = uncond + scale*(cond - uncond), each operation rounded to
/// `type`. The scale itself stays f32, as torch keeps a number that multiplies a tensor. `out` may be one of the
/// inputs.
void guide(std::span<const float> uncond, std::span<const float> cond, float scale, std::span<float> out,
           WorkType type);

/// The timestep as a network of that dtype receives it (bf16 rounds 987.5 to 988).
float timestep_as(float timestep, WorkType type);

/// Solvers by name. `euler` is the pipelines' own and exact; `heun` is second order (two network calls a step).
enum class Sampler { euler, heun };
Result<Sampler> parse_sampler(std::string_view name);
std::string_view name(Sampler s);

/// Drives a solver: the pipeline supplies the network and gets each step's latents.
struct SamplerCallbacks {
  /// Guided prediction for `latents` at `sigma` (timestep num_train_timesteps*sigma). Called once (euler) or twice
  /// (heun) a step.
  std::function<Result<std::vector<float>>(std::span<const float> latents, float sigma)> predict;
  /// After each step: index from 0, latents after it. An error (cancelled) stops the run. May be empty.
  std::function<Result<void>(int step, std::span<const float> latents)> after_step;
};

/// Integrates from the first to the last sigma; `latents` are the result (those of the last whole step on an error).
/// heun: x' = x + h*v(x, s), then x + h*(v(x, s) + v(x', s + h))/2; a step that ends at sigma 0, where no network is
/// trained, is an Euler step. Errors: sigmas that are not finite, a prediction of another size or with NaN or Inf, and
/// whatever a callback returns.
Result<void> run_sampler(Sampler sampler, const Schedule& schedule, std::vector<float>& latents, WorkType type,
                         const SamplerCallbacks& callbacks);

}  // namespace danqing
