// Names of the files that a run writes.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "danqing/result.h"

namespace danqing::app {

struct OutputFields {
  uint64_t seed = 0;
  int index = 0;               ///< of the picture in this run, from 0
  std::string_view prompt;
};

/// Replaces {seed}, {index} (with {index:04} padding), {prompt}. Usage error for unknown fields or unbalanced braces.
Result<std::string> expand_output_name(std::string_view pattern, const OutputFields& fields);
/// A prompt as part of a file name: letters and digits of any script kept, the rest '-', at most `max_bytes`.
std::string slug(std::string_view prompt, size_t max_bytes = 48);
/// The pattern with "-{index}" before its extension, unless it tells pictures apart by itself or there is only one.
std::string pattern_for(std::string_view pattern, int images);
/// `path`, or the first of path-2, path-3, ... that does not exist.
std::filesystem::path free_name(const std::filesystem::path& path);

}  // namespace danqing::app
