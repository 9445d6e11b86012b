// Recognition by tensor names, and the class names that configs use.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint.h"

namespace danqing {

/// Every component that one file holds, at most one a role ("transformer" and "vae" of a single-file checkpoint);
/// a LoRA file gives the one role "lora".
std::vector<TensorKind> recognise_all(const TensorSource& source);

/// The kind that a config's class means: "_class_name" of diffusers, "architectures" of transformers. Empty if unknown.
std::optional<TensorKind> kind_of_class(std::string_view class_name);

/// The class a config names: "_class_name" (diffusers) or the first of "architectures" (transformers); empty if
/// neither.
std::string class_of_config(const Json& config);

/// Pipeline classes of model_index.json that this library knows by name.
const std::vector<std::string>& known_pipelines();

}  // namespace danqing
