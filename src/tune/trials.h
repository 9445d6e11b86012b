// What a card is tried with before it is trusted: the products, attention and convolution of the true networks' widths,
// held to the CPU's results, and timed.
#pragma once
#include <string>
#include <vector>

#include "danqing/result.h"
#include "device/device.h"

namespace danqing::tune {

/// One stage of a pipeline. Shapes are those of ERNIE-Image at 512x512 (Z-Image's differ by a tenth).
enum class Stage { text, denoiser, vae };
std::string_view name(Stage stage);  ///< "text", "denoiser", "vae"

struct Trial {
  Stage stage = Stage::text;
  bool flash = false;    ///< attention by the card's own kernel, on padded keys; else with its scores written out
  double deviation = 0;  ///< relative L2 to the CPU in f32; not finite: it made NaN or infinity
  double seconds = 0;    ///< of one layer at the stage's full size, extrapolated where the device is too slow for that
};

/// How far a stage may be off: products in fp16 with f32 sums are off by some 5e-4, a wrong kernel by far more.
inline constexpr double kMostDeviation = 5e-3;

struct TrialOptions {
  double most_seconds = 0.5;  ///< of one run; what would take longer is measured on fewer rows
  double scale = 1;           ///< of all widths and lengths, for tests
};

/// Errors: does_not_fit, device_lost, failed (an operation that the device lacks).
Result<Trial> run_trial(Device& device, Device& reference, Stage stage, bool flash, const TrialOptions& options = {});

}  // namespace danqing::tune
