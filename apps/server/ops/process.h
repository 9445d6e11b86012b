// What `danqing serve` and `danqing worker` do with their process.
#pragma once
#include <csignal>

#include "server/config/config.h"

namespace danqing::server {

/// Signals are taken by the main thread alone; threads made afterwards inherit the mask. SIGTERM, SIGINT, SIGHUP.
sigset_t block_signals();
/// A connection is a file descriptor: as many as we may have.
void raise_file_limit();
void configure_log(const Config& config);

}  // namespace danqing::server
