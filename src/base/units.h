// Quantities as people write them.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "danqing/result.h"

namespace danqing {

std::string format_bytes(uint64_t bytes);                       ///< "14.96 GiB"
Result<uint64_t> parse_bytes(std::string_view text);            ///< "32GiB", "512M" (binary), "1000000"
Result<std::pair<int, int>> parse_size(std::string_view text);  ///< "1024x768" -> width, height; both >= 1
std::string format_seconds(double seconds);                     ///< "0.42 s", "1:05", "2:03:10"

}  // namespace danqing
