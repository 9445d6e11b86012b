// TOML (toml++) to JSON; in its own file because the library is large.
#pragma once
#include "base/json.h"

namespace danqing::server {

Result<Json> parse_toml(const std::string& text, const std::string& where);

}  // namespace danqing::server
