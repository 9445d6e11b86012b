// String operations of Python that templates use.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace danqing::jinja {

/// str.strip and its halves; without `chars` white space goes.
std::string strip(std::string_view s, const std::optional<std::string>& chars, bool left, bool right);
/// str.split / rsplit; an empty `separator` stands for runs of white space. limit < 0: no limit.
std::vector<std::string> split(std::string_view s, std::string_view separator, int64_t limit, bool from_right);
std::string replace(std::string_view s, std::string_view old, std::string_view with, int64_t limit);
std::string upper(std::string_view s);
std::string lower(std::string_view s);
std::string capitalize(std::string_view s);
std::string title(std::string_view s);

}  // namespace danqing::jinja
