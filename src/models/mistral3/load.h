// From files to a config and weights on a device. Private to this folder.
#pragma once
#include <memory>

#include "checkpoint/checkpoint.h"
#include "device/weights.h"
#include "models/mistral3/config.h"

namespace danqing::mistral3 {

/// Which tensors a use of the stack needs.
enum class Part {
  features,    ///< all layers but the last, no final norm, no head
  all_states,  ///< every layer and the final norm
  language,    ///< and the head
};

struct Stack {
  Config config;
  RopeTable rope;
  std::shared_ptr<const Weights> weights;
  bool exact = false;  ///< matrices are kept in f32
};
/// Errors: bad_input (config, tensors), does_not_fit, cancelled. Sizes come from config.json, else off the tensors.
Result<Stack> load_stack(std::shared_ptr<Device> device, const ComponentFiles& files, Part part,
                         const WeightPolicy& policy, const LoadProgress& progress);

}  // namespace danqing::mistral3
