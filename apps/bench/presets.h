// Shapes to benchmark without weights: the published configs by name, or the config.json files of a directory.
#pragma once
#include <map>
#include <string>

#include "base/json.h"

namespace danqing::app {

/// Component role -> config.json. `name_or_directory`: "ernie-8b", "z-image-6b", or a directory laid out like a model
/// whose component folders hold a config.json (no weights needed). Usage error listing the names otherwise.
Result<std::map<std::string, Json>> load_configs(const std::string& name_or_directory);

}  // namespace danqing::app
