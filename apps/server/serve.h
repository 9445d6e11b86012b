// The running server, from start to drained.
#pragma once
#include "server/config/config.h"

namespace danqing::server {

/// Returns when SIGTERM or SIGINT has drained it (exit code 0; 1 if jobs had to be put back).
Result<int> serve(const Config& config);

}  // namespace danqing::server
