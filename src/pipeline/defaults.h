// What a request gets when it doesn't say, and the description of a model for people.
#pragma once
#include "checkpoint/checkpoint.h"
#include "danqing/model.h"
#include "sampling/flow_match.h"

namespace danqing {

/// Scheduler of ERNIE-Image for files that carry none: static shift 4 (the published scheduler_config.json).
FlowMatchConfig ernie_image_scheduler();

/// ModelInfo from headers and configs. Defaults: danqing.json beside model_index.json, then the kind ("turbo" in the
/// directory's or file's name means the distilled model). Error for a danqing.json with wrong fields.
Result<ModelInfo> describe_model(const Checkpoint& checkpoint, const FlowMatchConfig& scheduler, int size_multiple);

}  // namespace danqing
