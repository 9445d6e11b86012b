// From a job to the planner's input, and from its decision to the networks.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "danqing/memory.h"
#include "memory/plan.h"
#include "pipeline/family.h"
#include "pipeline/settings.h"

namespace danqing {

/// Side, in the denoiser's latents, of the cut that a new VAE's previews are learned from: a few per cent of a picture.
inline constexpr int kPreviewCut = 8;

/// What of a job decides its memory.
struct JobShape {
  int width = 0, height = 0, batch = 1;
  int64_t passes = 1;                    ///< of the denoiser
  std::vector<int64_t> text_tokens;      ///< one a picture
  std::vector<int64_t> negative_tokens;  ///< one a picture; empty without guidance
  bool encodes = true;                   ///< some prompt's features are not there yet
  bool draws = true;                     ///< false: the enhancer's text is all that is wanted
  bool starts_from_image = false;        ///< the VAE encodes a picture first
  bool calibrates = false;               ///< previews may decode a cut of the latents while the denoiser is there
  int64_t enhancer_prompt = 0;           ///< tokens of the longest; 0 = the enhancer does not run
  int64_t enhancer_new = 0;              ///< at most so many
};

/// Measured compute buffers by what they depend on, so that a server does not build the same graphs for every request.
using PlanCache = std::map<std::string, uint64_t>;

/// Bytes that may be used: the options', else what there is free beside the model's own (`allocated`).
memory::Limits memory_limits(const Device& device, const MemoryOptions& options);
/// Errors: usage (an unknown weight type), bad_input (headers), does_not_fit.
Result<memory::Decision> plan_job(ModelFamily& family, const memory::Limits& limits, const MemoryOptions& options,
                                  const JobShape& job, PlanCache* cache = nullptr);
/// Tells the networks how they are kept; those that are there otherwise go.
void apply(const memory::Decision& decision, ModelFamily& family);

}  // namespace danqing
