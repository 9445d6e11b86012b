// Numbers inside file formats: unaligned little-endian loads.
#pragma once
#include <bit>
#include <cstddef>
#include <cstring>
#include <type_traits>

namespace danqing {

static_assert(std::endian::native == std::endian::little,
              "the file formats are read in place, which needs a little-endian host");

template <class T>
T load_le(const std::byte* p) {
  static_assert(std::is_trivially_copyable_v<T>);
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

}  // namespace danqing
