// danqing worker: draws for servers that share its queue.
#pragma once
#include "server/config/config.h"

namespace danqing::server {

/// Until SIGTERM, SIGINT or a lost device. The exit code: 0, 1 (a job's end could not be told, the queue refuses this
/// program), 5 (the device is lost).
Result<int> work(const Config& config);

}  // namespace danqing::server
