// Foreign text in messages: what a file or a user wrote, made safe to print on one line.
#pragma once
#include <string>
#include <string_view>

namespace danqing {

/// `text` with control characters and invalid UTF-8 as \xNN, cut (with "...") after about `max` bytes.
std::string one_line(std::string_view text, size_t max = 120);

}  // namespace danqing
