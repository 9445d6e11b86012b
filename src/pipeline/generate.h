// The one generation loop: enhance, encode, noise, denoise, decode.
#pragma once
#include <list>
#include <map>
#include <string>

#include "danqing/engine.h"
#include "pipeline/family.h"
#include "pipeline/planning.h"
#include "pipeline/preview.h"
#include "pipeline/settings.h"

namespace danqing {

/// Text features by prompt, the most recent kept (negative prompts recur in every call).
class FeatureCache {
 public:
  const Tensor* find(const std::string& prompt);
  const Tensor* put(const std::string& prompt, Tensor features);

  static constexpr size_t kCapacity = 64;

 private:
  std::list<std::pair<std::string, Tensor>> entries_;  // newest first
};

/// Loading as a progress event: per mille of bytes.
ProgressEvent load_event(uint64_t done, uint64_t total);

/// Where a job computes and how much of it may be used.
struct JobMemory {
  std::shared_ptr<Device> device;
  MemoryOptions options;
};

/// `preview`: the engine's map from latents to colours, learned further with each decoded picture; null = no previews.
Result<GenerateResult> generate(ModelFamily& family, FeatureCache& cache, const GenerateRequest& request,
                                const Settings& settings, const RunControl& control, const JobMemory& memory,
                                ComputeType compute_type, LatentPreview* preview = nullptr);

}  // namespace danqing
