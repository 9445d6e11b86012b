// Foreign text in messages: what a file or a user wrote, made safe to print on one line.
#pragma once
#include <string>
#include <string_view>

namespace danqing {

/// `text` with control characters and invalid UTF-8 as \xNN, cut (with "...") after about `max` bytes.
std::string one_line(std::string_view text, size_t max = 120);

/// How many bytes from the front are well-formed UTF-8 (RFC 3629).
size_t valid_utf8_prefix(std::string_view text);

}  // namespace danqing
