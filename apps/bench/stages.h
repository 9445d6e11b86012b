// The benchmarked stages of one model, with weights from files or made up.
#pragma once
#include <functional>
#include <map>
#include <set>
#include <string>

#include "bench/measure.h"
#include "checkpoint/checkpoint.h"
#include "device/weights.h"
#include "models/vae/vae.h"

namespace danqing::app {

struct BenchOptions {
  int width = 0, height = 0;
  int text_tokens = 64, encoder_tokens = 256, enhancer_prompt = 64, new_tokens = 32;
  int batch = 1, repetitions = 3;
  vae::Tiling vae_tiling;
  bool warm_up = true;           ///< a run that does not count comes first
  std::set<std::string> stages;  ///< empty = all
  bool wants(const std::string& s) const { return stages.empty() || stages.count(s) > 0; }
};

/// Supplies a component by role; null result when the model has none.
struct ComponentProvider {
  std::function<Result<std::optional<ComponentFiles>>(const std::string& role)> get;
  std::function<WeightPolicy(const ComponentFiles&)> policy;
};

/// Whether a transformer or text encoder with this config (null: with these tensors) is Z-Image's.
bool is_z_image(const Json* config, const TensorSource* source);

/// Loads one component after the other (each freed before the next, so that peaks are their own) and measures.
/// Each row goes to `on_row` as soon as it is there. `cancelled` is polled within a computation.
Result<void> bench_stages(std::shared_ptr<Device> device, const ComponentProvider& components,
                          const BenchOptions& options, const std::function<void(Measurement)>& on_row,
                          const std::function<bool()>& cancelled);

}  // namespace danqing::app
