#include "checkpoint/gguf_values.h"

#include "base/text.h"

namespace danqing {
namespace {

// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, enum gguf_metadata_value_type
enum ValueType : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64,
};
constexpr uint64_t kSizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};  // least bytes of a value of each type
constexpr uint64_t kShown = 8;                                           // elements of an array that are kept as text
constexpr uint64_t kMaxText = uint64_t{1} << 30;

template <class T>
GgufValue integer(T v) {
  GgufValue out;
  out.text = fmt::format("{}", v);
  if constexpr (std::is_same_v<T, uint64_t>)
    if (v > static_cast<uint64_t>(INT64_MAX)) return out;  // shown, but of no use as a count or size
  out.integers.push_back(static_cast<int64_t>(v));
  return out;
}

}  // namespace

Result<void> GgufCursor::need(uint64_t n, std::string_view what) const {
  if (n <= bytes_.size() - position_) return {};
  return bad_input(
      "[checkpoint] {}: expected {} bytes for {} at byte {}, got {}: the file is damaged or its download incomplete",
      where_, n, what, position_, bytes_.size() - position_);
}

Result<std::string> GgufCursor::text(std::string_view what, uint64_t max) {
  DQ_TRY(const uint64_t length, number<uint64_t>(what));
  if (length > max)
    return bad_input("[checkpoint] {}: expected at most {} bytes for {} at byte {}, got {}; the file is damaged",
                     where_, max, what, position_ - 8, length);
  DQ_CHECK(need(length, what));
  std::string out(reinterpret_cast<const char*>(bytes_.data()) + position_, length);
  position_ += length;
  return out;
}

Result<uint64_t> GgufCursor::count(std::string_view what, uint64_t item_bytes) {
  DQ_TRY(const uint64_t n, number<uint64_t>(what));
  if (n > (bytes_.size() - position_) / item_bytes)
    return bad_input(
        "[checkpoint] {}: expected a number of {} that the file has room for, got {}; the file is damaged or its "
        "download incomplete",
        where_, what, n);
  return n;
}

Result<GgufValue> GgufCursor::value(const std::string& key) {
  DQ_TRY(const uint32_t type, number<uint32_t>(fmt::format("the type of '{}'", one_line(key))));
  return type == kArray ? array(key) : scalar(type, key);
}

Result<GgufValue> GgufCursor::scalar(uint32_t type, const std::string& key) {
  const std::string what = fmt::format("the value of '{}'", one_line(key));
  const auto as_integer = [&](auto zero) -> Result<GgufValue> {
    DQ_TRY(const auto v, number<decltype(zero)>(what));
    return integer(v);
  };
  GgufValue out;
  switch (type) {
    case kU8: return as_integer(uint8_t{});
    case kI8: return as_integer(int8_t{});
    case kU16: return as_integer(uint16_t{});
    case kI16: return as_integer(int16_t{});
    case kU32: return as_integer(uint32_t{});
    case kI32: return as_integer(int32_t{});
    case kU64: return as_integer(uint64_t{});
    case kI64: return as_integer(int64_t{});
    case kF32: {
      DQ_TRY(const float v, number<float>(what));
      out.text = fmt::format("{}", v);
      return out;
    }
    case kF64: {
      DQ_TRY(const double v, number<double>(what));
      out.text = fmt::format("{}", v);
      return out;
    }
    case kBool: {
      DQ_TRY(const uint8_t v, number<uint8_t>(what));
      if (v > 1) return bad_input("[checkpoint] {}: {} expected a bool of 0 or 1, got {}", where_, what, v);
      out.text = v ? "true" : "false";
      return out;
    }
    case kString: {
      DQ_TRY(out.text, text(what, kMaxText));
      out.is_text = true;
      return out;
    }
    default: return bad_input("[checkpoint] {}: {} expected a type of 0 to 12, got {}", where_, what, type);
  }
}

Result<GgufValue> GgufCursor::array(const std::string& key) {
  const std::string what = fmt::format("the array '{}'", one_line(key));
  DQ_TRY(const uint32_t type, number<uint32_t>(what));
  if (type == kArray || type > kF64)
    return bad_input("[checkpoint] {}: {} expected numbers, bools or texts, got elements of type {}", where_, what,
                     type);
  DQ_TRY(const uint64_t n, count(fmt::format("elements of '{}'", one_line(key)), kSizes[type]));
  GgufValue out;
  out.text = "[";
  for (uint64_t i = 0; i < n; ++i) {
    if (i >= kShown && type != kString) {  // the rest has a known length
      position_ += (n - i) * kSizes[type];
      break;
    }
    DQ_TRY(const GgufValue v, scalar(type, key));
    if (i < kShown) {
      out.text += (i ? ", " : "") + (type == kString ? "\"" + one_line(v.text, 40) + "\"" : v.text);
      out.integers.insert(out.integers.end(), v.integers.begin(), v.integers.end());
    }
  }
  out.text += n > kShown ? fmt::format(", ...] ({} elements)", n) : "]";
  if (n > kShown || out.integers.size() != n) out.integers.clear();
  return out;
}

}  // namespace danqing
