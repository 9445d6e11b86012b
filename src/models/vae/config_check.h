// Internal: what a config must satisfy, whether it was read from config.json or from the tensors' shapes.
#pragma once
#include "models/vae/vae.h"

namespace danqing::vae {
Result<void> check(const Config& c, const std::string& where);
}
