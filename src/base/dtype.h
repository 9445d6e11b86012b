// Element types of stored tensors: the plain ones of safetensors, the block formats of GGUF, and packed 4-bit floats.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace danqing {

enum class DType : uint8_t {
  f64,
  f32,
  f16,
  bf16,
  f8_e4m3,
  f8_e5m2,
  f8_e8m0,  ///< a power of two: scales of MX formats
  i64,
  i32,
  i16,
  i8,
  u64,
  u32,
  u16,
  u8,
  boolean,
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q8_0,
  q2_k,
  q3_k,
  q4_k,
  q5_k,
  q6_k,
  iq1_s,
  iq1_m,
  iq2_xxs,
  iq2_xs,
  iq2_s,
  iq3_xxs,
  iq3_s,
  iq4_nl,
  iq4_xs,
  tq1_0,
  tq2_0,
  mxfp4,
  nvfp4,
  f4_e2m1,     ///< two values a byte, the first in the low half; scales lie beside it (TensorScale)
  f4_e2m1_hi,  ///< the same, the first value in the high half
};
inline constexpr int kDTypeCount = static_cast<int>(DType::f4_e2m1_hi) + 1;

struct DTypeTraits {
  std::string_view name;         ///< as shown to people: "bf16", "q4_K"
  std::string_view safetensors;  ///< tag in a safetensors header, empty if there is none
  int ggml_type;                 ///< number in a GGUF file, -1 if there is none
  int block_elements;            ///< 1 for plain types
  int block_bytes;
};

const DTypeTraits& traits(DType t);
std::optional<DType> dtype_from_name(std::string_view name);        ///< "bf16", "q4_K", case-insensitive
std::optional<DType> dtype_from_safetensors(std::string_view tag);  ///< "BF16", "F8_E4M3"
std::optional<DType> dtype_from_ggml(int ggml_type);
inline bool is_quantized(DType t) { return traits(t).block_elements > 1; }
/// Blocks that only ggml can take apart.
inline bool is_ggml_quantized(DType t) { return is_quantized(t) && traits(t).ggml_type >= 0; }
inline std::string_view name(DType t) { return traits(t).name; }

}  // namespace danqing
