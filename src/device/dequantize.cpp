#include "device/dequantize.h"

#include <ggml.h>

#include <cstring>

#include "base/float_bits.h"
#include "base/try.h"
#include "checkpoint/tensor_source.h"
#include "device/kernels/rows.h"

namespace danqing {
namespace {

Result<int64_t> blocks_in(DType dtype, size_t values) {
  const int64_t per_block = traits(dtype).block_elements, n = static_cast<int64_t>(values);
  if (n % per_block != 0)
    return bad_input("[dtype] expected whole {} blocks of {} values, got {} values", name(dtype), per_block, n);
  return n / per_block;
}

template <class Bits, class Narrow>
void narrow(std::span<const float> values, std::byte* out, Narrow narrow_one) {
  for (size_t i = 0; i < values.size(); ++i) {
    const Bits b = narrow_one(values[i]);
    std::memcpy(out + i * sizeof b, &b, sizeof b);
  }
}

}  // namespace

Result<void> dequantize(DType dtype, std::span<const std::byte> stored, std::span<float> out) {
  if (!is_ggml_quantized(dtype)) return decode_f32(dtype, stored, out);
  DQ_TRY(const int64_t blocks, blocks_in(dtype, out.size()));
  if (stored.size() != static_cast<size_t>(blocks) * traits(dtype).block_bytes)
    return bad_input("[dtype] expected {} bytes of {}, got {}", blocks * traits(dtype).block_bytes, name(dtype),
                     stored.size());
  if (!kernels::expands(dtype))
    return bad_input("[dtype] expected a type that ggml {} decodes, got {}", ggml_version(), name(dtype));
  if (!out.empty()) kernels::expand(dtype, stored.data(), static_cast<int64_t>(out.size()), out.data());
  return {};
}

bool can_quantize(DType dtype) {
  switch (dtype) {
    case DType::f32:
    case DType::f16:
    case DType::bf16:
    case DType::f8_e4m3:
    case DType::f8_e5m2: return true;
    default:
      return is_ggml_quantized(dtype) &&
             !ggml_quantize_requires_imatrix(static_cast<ggml_type>(traits(dtype).ggml_type));
  }
}

Result<void> quantize(DType dtype, std::span<const float> values, int64_t row, std::span<std::byte> out) {
  DQ_TRY(const int64_t blocks, blocks_in(dtype, values.size()));
  if (out.size() != static_cast<size_t>(blocks) * traits(dtype).block_bytes)
    return bad_input("[dtype] expected room for {} bytes of {}, got {}", blocks * traits(dtype).block_bytes,
                     name(dtype), out.size());
  if (values.empty()) return {};
  if (row < 1 || static_cast<int64_t>(values.size()) % row != 0 || row % traits(dtype).block_elements != 0)
    return bad_input("[dtype] expected rows of whole {} blocks, got {} values in rows of {}", name(dtype),
                     values.size(), row);
  switch (dtype) {
    case DType::f32: std::memcpy(out.data(), values.data(), out.size()); return {};
    case DType::f16: narrow<uint16_t>(values, out.data(), f32_to_f16); return {};
    case DType::bf16: narrow<uint16_t>(values, out.data(), f32_to_bf16); return {};
    case DType::f8_e4m3: narrow<uint8_t>(values, out.data(), f32_to_f8_e4m3); return {};
    case DType::f8_e5m2: narrow<uint8_t>(values, out.data(), f32_to_f8_e5m2); return {};
    default: break;
  }
  if (!can_quantize(dtype))
    return usage_error(
        "[dtype] expected f32, f16, bf16, f8 or a type that quantises without an importance matrix, got {}",
        name(dtype));
  const auto type = static_cast<ggml_type>(traits(dtype).ggml_type);
  ggml_quantize_chunk(type, values.data(), out.data(), 0, static_cast<int64_t>(values.size()) / row, row, nullptr);
  return {};
}

}  // namespace danqing
