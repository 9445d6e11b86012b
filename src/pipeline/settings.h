// A request with every default filled in and every value checked.
#pragma once
#include <string>
#include <vector>

#include "danqing/engine.h"
#include "pipeline/family.h"

namespace danqing {

struct Settings {
  int width = 0, height = 0, steps = 0;
  bool starts_from_image = false;
  int first_step = 0;  ///< where a run from a picture enters the schedule
  float guidance_scale = 0, cfg_normalization = 0, cfg_truncation = 1;
  bool guided = false;  ///< guidance is active: two passes a step
  float shift = 0;
  FlowMatchConfig scheduler;  ///< with the shift of this request
  Sampler sampler = Sampler::euler;
  int images = 0;  ///< prompts x images_per_prompt
  int batch_size = 1;
  bool enhance = false;
  std::vector<uint64_t> seeds;                ///< one a picture
  std::vector<std::string> negative_prompts;  ///< one a prompt
  std::vector<std::string> notes;             ///< honest parameters: what has no effect or was changed
};

constexpr int kMaxSide = 16384;   ///< pixels; beyond it positions and memory make no sense
constexpr int kMaxImages = 4096;  ///< of one request
constexpr int kMaxPromptBytes = 1 << 20;

/// The side that a given picture's is drawn at: cut to the model's multiple, one of them at least.
int in_multiples(const ModelInfo& model, int side);

/// The first thing wrong is a usage Error that names the field, what was expected and what came.
/// Draws a random seed when the request has none.
Result<Settings> resolve(const GenerateRequest& request, const ModelFamily& family, bool is_cpu);

}  // namespace danqing
