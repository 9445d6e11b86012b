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
  int index = 0;  ///< of the picture in this run, from 0
  std::string_view prompt;
};

/// Replaces {seed}, {index} (with {index:04} padding), {prompt}. Usage error for unknown fields or unbalanced braces.
Result<std::string> expand_output_name(std::string_view pattern, const OutputFields& fields);
/// Usage error for a pattern that gives no picture file's name. Touches nothing on disk.
Result<void> check_output_pattern(const std::string& pattern);
/// Makes the directory of the pattern, as far as no field is in its name, and fails if nothing can be written there:
/// before the computation, not after it.
Result<void> make_output_directory(const std::string& pattern);
/// A prompt as part of a file name: letters and digits of any script kept, runs of the rest (invalid UTF-8 too) become
/// '-', at most `max_bytes`; "picture" if nothing is left.
std::string slug(std::string_view prompt, size_t max_bytes = 48);
/// The pattern with "-{index}" before its extension, unless it tells pictures apart by itself or there is only one.
std::string pattern_for(std::string_view pattern, size_t images);
/// `path`, or the first of path-2, path-3, ... that does not exist.
std::filesystem::path free_name(const std::filesystem::path& path);

}  // namespace danqing::app
