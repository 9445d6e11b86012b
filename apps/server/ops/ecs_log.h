// The server's log: one JSON object a line in Elastic Common Schema names, or plain text. To stderr.
#pragma once
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/log.h"

namespace danqing::server {

/// Fields beside time, level and message, by their ECS names: {"trace.id": ..., "event.action": ...}.
void log_event(log::Level level, std::string_view message, const Json& fields = Json::object());
void configure_log(bool json, log::Level level);

}  // namespace danqing::server
