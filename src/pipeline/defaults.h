// What a request gets when it doesn't say, and the description of a model for people.
#pragma once
#include "checkpoint/checkpoint.h"
#include "danqing/model.h"
#include "sampling/flow_match.h"

namespace danqing {

/// "turbo" in the directory's or file's name: the distilled model.
bool named_turbo(const Checkpoint& checkpoint);

/// ModelInfo from headers and configs. Defaults: danqing.json beside model_index.json, then `kind`, what the family
/// knows about this kind of model. Error for a danqing.json with wrong fields.
Result<ModelInfo> describe_model(const Checkpoint& checkpoint, const FlowMatchConfig& scheduler,
                                 const ModelDefaults& kind);

}  // namespace danqing
