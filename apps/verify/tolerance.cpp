#include "verify/tolerance.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace danqing::app::verify {
namespace {

double worst_f32(const Json& measured) {
  double worst = 0;
  if (!measured.is_object()) return worst;
  for (const auto& [key, value] : measured.items())
    if (key.starts_with("f32_vs_")) worst = std::max(worst, number_at(value, {"rel_l2"}).value_or(0));
  return worst;
}

}  // namespace

std::string Tolerance::text() const {
  switch (measure) {
    case Measure::relative_l2: return fmt::format("{:.1e}", limit);
    case Measure::max_abs: return fmt::format("{:.1e} abs", limit);
    case Measure::max_relative: return fmt::format("{:.1e} each", limit);
    case Measure::bf16_ulp: return fmt::format("{:g} bf16 ulp", limit);
    case Measure::f32_ulp: return fmt::format("{:g} ulp", limit);
    case Measure::levels:
      return share >= 1 ? fmt::format("{:g} levels", limit)
                        : fmt::format("{:g} level{}, {:g}%", limit, limit == 1 ? "" : "s", 100 * share);
    case Measure::exact: break;
  }
  return "exact";
}

DeviceFactors factors_for(bool is_cpu) {
  if (is_cpu) return {};
  return {.matmul = 400, .elementwise = 10, .levels = 4, .share = 0.5, .exact_sampling = false};
}

std::string describe(const DeviceFactors& f) {
  if (f.matmul == 1) return "the page's tolerances";
  return fmt::format(
      "a card: tolerances x {:g} where matrices are multiplied (fp16 or TF32), x {:g} for other networks' "
      "operations, pictures {} levels in {:g}% of the values",
      f.matmul, f.elementwise, f.levels, 100 * f.share);
}

Tolerance f32_tolerance(double of_page, double spread, double factor) {
  Tolerance t{Measure::relative_l2, of_page, 1, fmt::format("page {:.0e}", of_page)};
  if (10 * spread > of_page) {
    t.limit = 10 * spread;
    t.rule = fmt::format("10 x measured f32 spread {:.2e}", spread);
  }
  if (factor != 1) {
    t.limit *= factor;
    t.rule += fmt::format(", x {:g} for this device", factor);
  }
  return t;
}

Tolerance bf16_tolerance(double torch_error, bool against_f32) {
  const double times = against_f32 ? 1.5 : 2;
  return {Measure::relative_l2, times * torch_error, 1,
          fmt::format("{:g} x torch's bf16 error {:.2e}, against the {} golden", times, torch_error,
                      against_f32 ? "f32" : "bf16")};
}

Tolerance picture_tolerance(const DeviceFactors& f, const Json& measured) {
  Tolerance t{Measure::levels, static_cast<double>(f.levels), f.share, "page: 1 level in 0.5% of the values"};
  if (f.matmul != 1) t.rule = fmt::format("{} levels in {:g}% of the values on this device", f.levels, 100 * f.share);
  if (!measured.is_object()) return t;
  for (const auto& [key, value] : measured.items()) {
    if (!key.starts_with("f32_vs_")) continue;
    const double share = 10 * number_at(value, {"fraction_different"}).value_or(0);
    const double levels = number_at(value, {"max_levels"}).value_or(0);
    if (share > t.share) t.share = std::min(1.0, share), t.rule = "10 x measured share of different values";
    // Correct f32 evaluations that differ by two levels among themselves can be two more away from a third.
    if (levels > 1 && 2 * levels > t.limit) t.limit = 2 * levels, t.rule += ", twice the measured levels";
  }
  return t;
}

double f32_spread(const Json& sidecar, std::string_view name) {
  if (!sidecar.is_object() || !sidecar.contains("measured")) return 0;
  const Json& measured = sidecar["measured"];
  if (measured.is_object() && measured.contains(name)) return worst_f32(measured[std::string(name)]);
  return worst_f32(measured);
}

std::optional<double> number_at(const Json& json, std::initializer_list<std::string_view> path) {
  const Json* at = &json;
  for (const std::string_view key : path) {
    if (!at->is_object()) return {};
    const auto it = at->find(key);
    if (it == at->end()) return {};
    at = &*it;
  }
  if (!at->is_number()) return {};
  const double v = at->get<double>();
  return std::isfinite(v) ? std::optional(v) : std::nullopt;
}

}  // namespace danqing::app::verify
