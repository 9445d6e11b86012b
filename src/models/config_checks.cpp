#include "models/config_checks.h"

#include "base/try.h"

namespace danqing {

Result<void> check_ranges(std::span<const SizeRange> ranges, const std::string& where) {
  for (const SizeRange& r : ranges) {
    if (r.value < r.min || r.value > r.max)
      return bad_input("[transformer] {}: field '{}' expected {} to {}, got {}", where, r.field, r.min, r.max, r.value);
  }
  return {};
}

Result<void> check_rope_axes(const char* field, std::span<const int64_t> axes, int64_t head_dim, const char* sum,
                             const std::string& where) {
  int64_t left = head_dim;
  for (int64_t d : axes) {
    if (d < 2 || d % 2 != 0 || d > left)
      return bad_input("[transformer] {}: field '{}' expected even positive sizes with sum {}, got [{}]", where, field,
                       head_dim, fmt::join(axes, ", "));
    left -= d;
  }
  if (left != 0)
    return bad_input("[transformer] {}: field '{}' expected the sum {} ({}), got {}", where, field, head_dim, sum,
                     head_dim - left);
  return {};
}

}  // namespace danqing
