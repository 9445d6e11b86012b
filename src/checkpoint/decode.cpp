#include <cmath>

#include "base/bytes.h"
#include "base/float_bits.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/scale_table.h"
#include "checkpoint/tensor_source.h"

namespace danqing {
namespace {

template <class Stored, class Convert>
void widen(std::span<const std::byte> in, std::span<float> out, Convert convert) {
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<float>(convert(load_le<Stored>(in.data() + i * sizeof(Stored))));
}
template <class Stored>
void widen(std::span<const std::byte> in, std::span<float> out) {
  widen<Stored>(in, out, [](Stored v) { return v; });
}

// Two values a byte; the first one is `shift` bits up.
void unpack(std::span<const std::byte> in, std::span<float> out, int shift) {
  for (size_t i = 0; i < out.size(); ++i) {
    const auto pair = std::to_integer<uint8_t>(in[i / 2]);
    out[i] = f4_e2m1_to_f32(static_cast<uint8_t>(pair >> (i % 2 == 0 ? shift : 4 - shift)));
  }
}

// Integers and booleans; false for the other types.
template <class Sink>
bool for_each_integer(DType dtype, std::span<const std::byte> in, Sink sink) {
  const auto each = [&](auto zero) {
    for (size_t i = 0; i + sizeof zero <= in.size(); i += sizeof zero) sink(load_le<decltype(zero)>(in.data() + i));
    return true;
  };
  switch (dtype) {
    case DType::i64: return each(int64_t{});
    case DType::i32: return each(int32_t{});
    case DType::i16: return each(int16_t{});
    case DType::i8: return each(int8_t{});
    case DType::u64: return each(uint64_t{});
    case DType::u32: return each(uint32_t{});
    case DType::u16: return each(uint16_t{});
    case DType::u8:
    case DType::boolean: return each(uint8_t{});
    default: return false;
  }
}

Result<const TensorInfo*> named(const TensorSource& source, std::string_view name) {
  if (const TensorInfo* t = source.find(name)) return t;
  return bad_input("[checkpoint] {}: expected a tensor '{}', got none of that name", source.path().string(),
                   one_line(name));
}

}  // namespace

Result<void> decode_f32(DType dtype, std::span<const std::byte> stored, std::span<float> out) {
  if (is_ggml_quantized(dtype))
    return fail(ErrorCode::failed, "[checkpoint] expected a plain dtype, got {}; it needs the device layer",
                name(dtype));
  const auto size = static_cast<size_t>(traits(dtype).block_bytes);
  const auto values = static_cast<size_t>(traits(dtype).block_elements);
  if (stored.size() / size * values != out.size() || stored.size() % size != 0)
    return fail(ErrorCode::failed, "[checkpoint] expected {} bytes for {} values of {}, got {}",
                out.size() / values * size, out.size(), name(dtype), stored.size());
  switch (dtype) {
    case DType::f64: widen<double>(stored, out); return {};
    case DType::f32:
      if (!out.empty()) std::memcpy(out.data(), stored.data(), stored.size());
      return {};
    case DType::f16: widen<uint16_t>(stored, out, f16_to_f32); return {};
    case DType::bf16: widen<uint16_t>(stored, out, bf16_to_f32); return {};
    case DType::f8_e4m3: widen<uint8_t>(stored, out, f8_e4m3_to_f32); return {};
    case DType::f8_e5m2: widen<uint8_t>(stored, out, f8_e5m2_to_f32); return {};
    case DType::f8_e8m0: widen<uint8_t>(stored, out, f8_e8m0_to_f32); return {};
    case DType::f4_e2m1: unpack(stored, out, 0); return {};
    case DType::f4_e2m1_hi: unpack(stored, out, 4); return {};
    default: break;
  }
  size_t i = 0;
  for_each_integer(dtype, stored, [&](auto v) { out[i++] = static_cast<float>(v); });
  return {};
}

Result<Tensor> read_f32(const TensorSource& source, std::string_view name) {
  DQ_TRY(const TensorInfo* t, named(source, name));
  if (is_ggml_quantized(t->dtype) || t->interleaved_head != 0)
    return bad_input("[checkpoint] {}: tensor '{}' expected a plain dtype, got {}", source.path().string(),
                     one_line(name), danqing::name(t->dtype));
  Tensor out(t->shape);
  DQ_CHECK(decode_f32(t->dtype, source.bytes(*t), out.data));
  DQ_TRY(const ScaleTable scale, ScaleTable::read(source, *t));
  scale.multiply(0, out.data);
  return out;
}

Result<std::vector<int64_t>> read_integers(const TensorSource& source, std::string_view name) {
  DQ_TRY(const TensorInfo* t, named(source, name));
  std::vector<int64_t> out;
  if (!for_each_integer(t->dtype, source.bytes(*t), [&](auto v) { out.push_back(static_cast<int64_t>(v)); }))
    return bad_input("[checkpoint] {}: tensor '{}' expected integers, got {}", source.path().string(), one_line(name),
                     danqing::name(t->dtype));
  return out;
}

}  // namespace danqing
