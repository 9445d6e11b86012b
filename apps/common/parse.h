// Words of the command line to values, with one-line errors.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "danqing/engine.h"

namespace danqing::app {

/// "42", "-1" (wraps to 2^64-1 as torch wraps it); up to 2^64-1.
/// `option` names it in errors.
Result<uint64_t> parse_seed(std::string_view text, std::string_view option = "--seed");
/// "42", "1,2,3"; "random" or "" gives an empty list.
Result<std::vector<uint64_t>> parse_seeds(std::string_view text);
/// "auto" gives 0, else a whole number from 1 on. `what` it counts is for the error.
Result<int> parse_count_or_auto(std::string_view text, std::string_view option, std::string_view what);
Result<EnhancerMode> parse_enhancer_mode(std::string_view text);
/// One prompt a line; empty lines are skipped; CRLF allowed. "-" reads standard input.
Result<std::vector<std::string>> read_prompts(const std::string& path);

}  // namespace danqing::app
