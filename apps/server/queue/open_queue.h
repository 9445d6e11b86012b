// Which queue the settings mean.
#pragma once
#include "server/config/config.h"
#include "server/engine/worker.h"

namespace danqing::server {

/// `database`: of the machine's own queue; `origin`: who hears of the jobs' ends, empty for those who submit none.
/// Never waits for a NATS server: `trouble` says that it is away. Errors: usage (bad address, a build without NATS),
/// bad_input (a credentials or certificate file).
Result<std::unique_ptr<JobQueue>> open_queue(const Config& config, const std::string& database,
                                             const std::string& origin);
/// "NATS 3.4.1", or "none" with the package that was missing.
std::string nats_text();

std::string worker_name(const Config& config);
/// Those of --size-classes, or what the card can hold; says in the log what is left out. None: nothing fits.
std::vector<Want::Lane> wanted_lanes(const Config& config, Models& models);

}  // namespace danqing::server
