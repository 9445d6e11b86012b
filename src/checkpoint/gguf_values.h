// The primitive values of a GGUF file, read from a bounded span: no length or count is believed before it is compared
// with the bytes that are left.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/try.h"

namespace danqing {

/// One metadata value: as text for people, and the numbers where the reader itself needs them.
struct GgufValue {
  std::string text;               ///< arrays: the first few elements and the count
  std::vector<int64_t> integers;  ///< an integer, or a short array of integers
  bool is_text = false;
};

class GgufCursor {
 public:
  GgufCursor(std::span<const std::byte> bytes, std::string where) : bytes_(bytes), where_(std::move(where)) {}

  template <class T>
  Result<T> number(std::string_view what) {
    DQ_CHECK(need(sizeof(T), what));
    const T v = load_le<T>(bytes_.data() + position_);
    position_ += sizeof(T);
    return v;
  }
  /// u64 length and bytes.
  Result<std::string> text(std::string_view what, uint64_t max);
  /// A u64 count of things that take at least `item_bytes` each.
  Result<uint64_t> count(std::string_view what, uint64_t item_bytes);
  /// A value with its u32 type in front.
  Result<GgufValue> value(const std::string& key);
  uint64_t position() const { return position_; }
  const std::string& where() const { return where_; }

 private:
  Result<void> need(uint64_t n, std::string_view what) const;
  Result<GgufValue> scalar(uint32_t type, const std::string& key);
  Result<GgufValue> array(const std::string& key);

  std::span<const std::byte> bytes_;
  std::string where_;
  uint64_t position_ = 0;
};

}  // namespace danqing
