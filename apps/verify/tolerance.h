// How far a result may lie from a golden, and where each limit comes from: the rules of the reference tree's page
// ("Files" and "bf16") and the spreads measured beside each golden.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "device/device.h"

namespace danqing::app::verify {

/// What is held against the limit.
enum class Measure {
  relative_l2,   ///< |got - expected|_2 / |expected|_2
  max_abs,       ///< largest absolute difference
  max_relative,  ///< largest difference of one value, relative to it
  bf16_ulp,      ///< largest difference in units of the last place of a bf16
  f32_ulp,       ///< the same of an f32
  levels,        ///< 8-bit pictures: largest difference of a value, and the share of values that differ
  exact,
};

struct Tolerance {
  Measure measure = Measure::exact;
  double limit = 0;
  double share = 1;  ///< levels only: how many of the values may differ
  std::string rule;  ///< where the limit comes from, for people

  std::string text() const;  ///< "1.0e-05", "5.0e-07 abs", "exact", "1 level, 0.5%"
  static Tolerance exact() { return {Measure::exact, 0, 0, "exact"}; }
};

/// The page's figures for an independent f32 implementation.
namespace page {
constexpr double kText = 1e-5, kTransformer = 5e-6, kVae = 1e-5, kDenormalise = 1e-6, kLogits = 1e-5;
constexpr double kLatents = 2e-5;
constexpr double kDecoded = kLatents + kVae;  // decoded latents carry both errors
constexpr double kScheduler = 1e-7, kNoise = 5e-7;
constexpr double kUnit = 2e-6, kUnitMatmul = 5e-6;
constexpr double kPixelShare = 0.005;
}  // namespace page

/// The one place where the kind of device counts. The CPU is held to the page. A card may multiply matrices in fp16 or
/// TF32 (11 bits against 24); fp16 errs about an eighth of what bf16 does, which for every network here (page,
/// "Measured") is below 400 times its f32 tolerance, and below every mistake of sensitivity.json that tells whole
/// outputs apart.
struct DeviceFactors {
  double matmul = 1;       ///< stages with matrix products: networks, attention, convolution
  double elementwise = 1;  ///< functions of single values, whose libraries differ by some ulp
  int levels = 1;          ///< pictures: largest difference of a value
  double share = page::kPixelShare;
  bool exact_sampling = true;  ///< token choices depend on exact f32 logits
};
DeviceFactors factors_for(bool is_cpu);
std::string describe(const DeviceFactors& f);

/// f32 rule: the page's tolerance, or ten times the measured f32 spread if that is larger, times the device's factor.
Tolerance f32_tolerance(double of_page, double spread, double factor);
/// bf16 rule: torch's own bf16 error 1.5 times against the f32 golden, twice against the bf16 golden.
Tolerance bf16_tolerance(double torch_error, bool against_f32);
/// 8-bit pictures of an f32 run.
Tolerance picture_tolerance(const DeviceFactors& f, const Json& measured);

/// The largest relative L2 among the f32 comparisons ("f32_vs_...") in `measured[name]`, else in `measured` itself.
double f32_spread(const Json& sidecar, std::string_view name);
/// The number at this path of member names, if there is one.
std::optional<double> number_at(const Json& json, std::initializer_list<std::string_view> path);

}  // namespace danqing::app::verify
