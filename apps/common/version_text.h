#pragma once
#include <string>

namespace danqing::app {

/// Several lines: version, ggml, devices, CPU features.
std::string version_text();

}  // namespace danqing::app
