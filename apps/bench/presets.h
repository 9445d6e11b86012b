// Shapes to benchmark without weights: the published configs by name, or the config.json files of a directory.
#pragma once
#include <map>
#include <string>

#include "base/json.h"
#include "checkpoint/tensor_spec.h"

namespace danqing::app {

/// Component role -> config.json. `name_or_directory`: "ernie-8b", "z-image-6b", or a directory laid out like a model
/// whose component folders hold a config.json (no weights needed). Usage error listing the names otherwise.
Result<std::map<std::string, Json>> load_configs(const std::string& name_or_directory);

/// Every tensor of a component under diffusers' names. Errors (bad_input): a config that is none.
Result<std::vector<TensorSpec>> specs_of(const std::string& role, const Json& config);

}  // namespace danqing::app
