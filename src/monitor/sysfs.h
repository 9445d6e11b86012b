// Files of /sys and /proc as they really are: missing, unreadable, empty, or holding something else than expected.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace danqing::monitor {

/// The bytes of a regular file, at most `limit`; nothing where it cannot be read. Never blocks (a pipe is no file).
std::optional<std::string> read_bytes(const std::filesystem::path& path, size_t limit = 65536);
/// The first line without blanks at its ends; nothing for an empty one or one with control characters.
std::optional<std::string> read_line(const std::filesystem::path& path);
/// A whole finite number that is the file's first line, within [min, max].
std::optional<double> read_number(const std::filesystem::path& path, double min, double max);
/// The number at the front of `text` ("16.0 GT/s PCIe" gives 16).
std::optional<double> leading_number(std::string_view text);
/// Names in a directory, sorted: those that start with `prefix`, the digits after it by value ("card2" before
/// "card10"); with `digits_only` nothing may follow the digits.
std::vector<std::string> numbered(const std::filesystem::path& directory, std::string_view prefix,
                                  bool digits_only = true);

}  // namespace danqing::monitor
