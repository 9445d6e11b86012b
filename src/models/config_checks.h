// Checks that the configs of several denoisers share.
#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "danqing/result.h"

namespace danqing {

struct SizeRange {
  const char* field;
  int64_t value, min, max;
};

/// Error bad_input names `where` and the first field beyond its bounds.
Result<void> check_ranges(std::span<const SizeRange> ranges, const std::string& where);

/// The share of each RoPE axis: even, positive, together head_dim. `sum` says in words where head_dim comes from.
Result<void> check_rope_axes(const char* field, std::span<const int64_t> axes, int64_t head_dim, const char* sum,
                             const std::string& where);

}  // namespace danqing
