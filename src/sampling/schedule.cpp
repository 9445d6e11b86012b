#include <algorithm>
#include <cmath>

#include "base/try.h"
#include "sampling/flow_match.h"
#include "sampling/sigma_spacing.h"

namespace danqing {
namespace {

constexpr int kMaxSteps = 10000;
constexpr std::string_view kClass = "FlowMatchEulerDiscreteScheduler";

// torch.linspace in f32: counted from both ends, multiply and add fused.
float linspace(float first, float last, int n, int i) {
  if (n == 1) return first;
  const float step = (last - first) / static_cast<float>(n - 1);
  return i < n / 2 ? std::fma(step, static_cast<float>(i), first)
                   : std::fma(-step, static_cast<float>(n - 1 - i), last);
}

void shift_sigmas(const FlowMatchConfig& c, int64_t image_seq_len, std::vector<float>& sigmas) {
  if (c.use_dynamic_shifting) {
    const double mu = dynamic_shift_mu(c, image_seq_len);
    const auto m = static_cast<float>(c.exponential_time_shift ? std::exp(mu) : mu);
    for (float& s : sigmas) s = m / (m + (1.0f / s - 1.0f));
  } else {
    const auto shift = static_cast<float>(c.shift), less = static_cast<float>(c.shift - 1.0);
    for (float& s : sigmas) s = shift * s / (1.0f + less * s);
  }
}

// Stretches 1 - sigma so that the last sigma becomes shift_terminal.
void stretch_to_terminal(double terminal, std::vector<float>& sigmas) {
  const float scale = (1.0f - sigmas.back()) / static_cast<float>(1.0 - terminal);
  for (float& s : sigmas) s = 1.0f - (1.0f - s) / scale;
}

void respace(const FlowMatchConfig& c, std::vector<float>& sigmas) {
  const double first = sigmas.front(), last = sigmas.back();
  const int n = static_cast<int>(sigmas.size());
  std::vector<double> spaced;
  if (c.use_karras_sigmas) spaced = karras_sigmas(first, last, n);
  if (c.use_exponential_sigmas) spaced = exponential_sigmas(first, last, n);
  if (c.use_beta_sigmas) spaced = beta_sigmas(first, last, n);
  std::transform(spaced.begin(), spaced.end(), sigmas.begin(), [](double s) { return static_cast<float>(s); });
}

Result<void> check(const FlowMatchConfig& c, const std::string& where) {
  if (!(std::isfinite(c.shift) && c.shift > 0))
    return usage_error("[scheduler] {}: expected shift above 0, got {}", where, c.shift);
  if (c.shift_terminal && !(*c.shift_terminal >= 0 && *c.shift_terminal < 1))
    return usage_error("[scheduler] {}: expected shift_terminal from 0 to below 1, got {}", where, *c.shift_terminal);
  if (c.use_dynamic_shifting && c.base_image_seq_len == c.max_image_seq_len)
    return usage_error("[scheduler] {}: expected base_image_seq_len and max_image_seq_len to differ, got {} twice",
                       where, c.base_image_seq_len);
  if (c.use_karras_sigmas + c.use_exponential_sigmas + c.use_beta_sigmas > 1)
    return usage_error(
        "[scheduler] {}: expected at most one of use_karras_sigmas, use_exponential_sigmas and "
        "use_beta_sigmas, got several",
        where);
  return {};
}

}  // namespace

Result<FlowMatchConfig> FlowMatchConfig::parse(const Json& json, const std::string& where) {
  DQ_TRY(const JsonObject o, JsonObject::of(json, where));
  DQ_TRY(const std::string class_name, o.string("_class_name"));
  if (class_name != kClass)
    return bad_input("[scheduler] {}: expected _class_name {}, got {}", where, kClass, class_name);
  FlowMatchConfig c;
  DQ_TRY(c.shift, o.number("shift", c.shift));
  DQ_TRY(c.use_dynamic_shifting, o.boolean("use_dynamic_shifting", false));
  DQ_TRY(c.base_shift, o.number("base_shift", c.base_shift));
  DQ_TRY(c.max_shift, o.number("max_shift", c.max_shift));
  DQ_TRY(c.base_image_seq_len, o.integer_in("base_image_seq_len", 0, int64_t{1} << 40, c.base_image_seq_len));
  DQ_TRY(c.max_image_seq_len, o.integer_in("max_image_seq_len", 0, int64_t{1} << 40, c.max_image_seq_len));
  DQ_TRY(c.num_train_timesteps, o.integer_in("num_train_timesteps", 1, 1000000, c.num_train_timesteps));
  DQ_TRY(c.invert_sigmas, o.boolean("invert_sigmas", false));
  DQ_TRY(c.use_karras_sigmas, o.boolean("use_karras_sigmas", false));
  DQ_TRY(c.use_exponential_sigmas, o.boolean("use_exponential_sigmas", false));
  DQ_TRY(c.use_beta_sigmas, o.boolean("use_beta_sigmas", false));
  if (o.has("shift_terminal")) {
    DQ_TRY(c.shift_terminal, o.number("shift_terminal"));
  }
  DQ_TRY(const std::string type, o.string("time_shift_type", "exponential"));
  if (type != "exponential" && type != "linear")
    return bad_input("[scheduler] {}: expected time_shift_type exponential or linear, got {}", where, type);
  c.exponential_time_shift = type == "exponential";
  DQ_TRY(const bool stochastic, o.boolean("stochastic_sampling", false));
  if (stochastic)
    return bad_input(
        "[scheduler] {}: expected stochastic_sampling false (fresh noise at every step is not supported), "
        "got true",
        where);
  if (auto ok = check(c, where); !ok) return bad_input("{}", ok.error().message);
  return c;
}

double dynamic_shift_mu(const FlowMatchConfig& c, int64_t image_seq_len) {
  const double slope = (c.max_shift - c.base_shift) / static_cast<double>(c.max_image_seq_len - c.base_image_seq_len);
  return static_cast<double>(image_seq_len) * slope +
         (c.base_shift - slope * static_cast<double>(c.base_image_seq_len));
}

Result<Schedule> make_schedule(const FlowMatchConfig& c, int n, SigmaSpacing spacing, int64_t image_seq_len,
                               std::span<const float> given) {
  DQ_CHECK(check(c, "settings"));
  if (n < 0 || n > kMaxSteps)
    return usage_error("[scheduler] expected num_inference_steps from 0 to {}, got {}", kMaxSteps, n);
  if (!given.empty() && given.size() != static_cast<size_t>(n))
    return usage_error("[scheduler] expected as many sigmas as num_inference_steps ({}), got {}", n, given.size());
  std::vector<float> sigmas(given.begin(), given.end());
  for (const float s : sigmas)
    if (!(s > 0 && s <= 1)) return usage_error("[scheduler] expected sigmas above 0 and up to 1, got {}", s);
  for (int i = 0; given.empty() && i < n; ++i)
    sigmas.push_back(spacing == SigmaSpacing::one_to_zero ? linspace(1.0f, 0.0f, n + 1, i)
                                                          : linspace(1.0f, static_cast<float>(1.0 / n), n, i));
  Schedule out;
  if (n > 0) {
    shift_sigmas(c, image_seq_len, sigmas);
    if (c.shift_terminal.value_or(0) != 0) stretch_to_terminal(*c.shift_terminal, sigmas);
    if (c.use_karras_sigmas || c.use_exponential_sigmas || c.use_beta_sigmas) respace(c, sigmas);
  }
  for (float& s : sigmas) {
    if (c.invert_sigmas) s = 1.0f - s;
    if (!std::isfinite(s))
      return usage_error(
          "[scheduler] expected finite sigmas, got {} from shift {}, {} image tokens and shift_terminal {}", s, c.shift,
          image_seq_len, c.shift_terminal.value_or(0));
    out.timesteps.push_back(s * static_cast<float>(c.num_train_timesteps));
  }
  out.sigmas = std::move(sigmas);
  out.sigmas.push_back(c.invert_sigmas ? 1.0f : 0.0f);
  return out;
}

}  // namespace danqing
