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
/// Mistral's config of the files: from config.json, else off the tensors. Error bad_input.
Result<Architecture> architecture_of(const ComponentFiles& files);
/// Errors: bad_input (tensors), does_not_fit, cancelled.
Result<Stack> load_stack(std::shared_ptr<Device> device, const ComponentFiles& files, const Architecture& architecture,
                         Part part, const WeightPolicy& policy, const LoadProgress& progress);

}  // namespace danqing::mistral3
