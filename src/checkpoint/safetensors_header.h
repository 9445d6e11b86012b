// The JSON header of a safetensors file: parsed event by event, so that duplicate keys are seen and nothing but the
// entries themselves is ever allocated.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/tensor.h"

namespace danqing {

struct SafetensorsEntry {
  std::string name, dtype;
  Shape shape;
  uint64_t begin = 0, end = 0;  ///< span in the data area behind the header
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  ///< as they stand in the header
  std::map<std::string, std::string> metadata;
};

/// Error (bad_input) begins with `where`: not JSON, a wrong type, a missing, unknown or repeated field.
Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, const std::string& where);

}  // namespace danqing
