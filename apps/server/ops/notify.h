// Tells systemd how the service is (sd_notify's protocol: a datagram to $NOTIFY_SOCKET).
#pragma once
#include <string>

namespace danqing::server {

void notify(const std::string& state);
/// Half of systemd's watchdog time in seconds; 0 = it does not watch.
double watchdog_seconds();

}  // namespace danqing::server
