#include "base/dtype.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace danqing {
namespace {

// The block sizes are those of the GGUF format; tests/device compares each with ggml's own table.
constexpr std::array<DTypeTraits, kDTypeCount> kTraits{{
    {"f64", "F64", 28, 1, 8},         {"f32", "F32", 0, 1, 4},          {"f16", "F16", 1, 1, 2},
    {"bf16", "BF16", 30, 1, 2},       {"f8_e4m3", "F8_E4M3", -1, 1, 1}, {"f8_e5m2", "F8_E5M2", -1, 1, 1},
    {"f8_e8m0", "F8_E8M0", -1, 1, 1}, {"i64", "I64", 27, 1, 8},         {"i32", "I32", 26, 1, 4},
    {"i16", "I16", 25, 1, 2},         {"i8", "I8", 24, 1, 1},           {"u64", "U64", -1, 1, 8},
    {"u32", "U32", -1, 1, 4},         {"u16", "U16", -1, 1, 2},         {"u8", "U8", -1, 1, 1},
    {"bool", "BOOL", -1, 1, 1},       {"q4_0", "", 2, 32, 18},          {"q4_1", "", 3, 32, 20},
    {"q5_0", "", 6, 32, 22},          {"q5_1", "", 7, 32, 24},          {"q8_0", "", 8, 32, 34},
    {"q2_K", "", 10, 256, 84},        {"q3_K", "", 11, 256, 110},       {"q4_K", "", 12, 256, 144},
    {"q5_K", "", 13, 256, 176},       {"q6_K", "", 14, 256, 210},       {"iq1_s", "", 19, 256, 50},
    {"iq1_m", "", 29, 256, 56},       {"iq2_xxs", "", 16, 256, 66},     {"iq2_xs", "", 17, 256, 74},
    {"iq2_s", "", 22, 256, 82},       {"iq3_xxs", "", 18, 256, 98},     {"iq3_s", "", 21, 256, 110},
    {"iq4_nl", "", 20, 32, 18},       {"iq4_xs", "", 23, 256, 136},     {"tq1_0", "", 34, 256, 54},
    {"tq2_0", "", 35, 256, 66},       {"mxfp4", "", 39, 32, 17},        {"nvfp4", "", 40, 64, 36},
    {"f4_e2m1", "", -1, 2, 1},        {"f4_e2m1_hi", "", -1, 2, 1},
}};

template <class Match>
std::optional<DType> first(Match match) {
  for (int i = 0; i < kDTypeCount; ++i)
    if (match(kTraits[i])) return static_cast<DType>(i);
  return std::nullopt;
}

bool same_text(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

}  // namespace

const DTypeTraits& traits(DType t) { return kTraits[static_cast<size_t>(t)]; }

std::optional<DType> dtype_from_name(std::string_view name) {
  return first([&](const DTypeTraits& t) { return same_text(t.name, name); });
}

std::optional<DType> dtype_from_safetensors(std::string_view tag) {
  if (tag.empty()) return std::nullopt;
  return first([&](const DTypeTraits& t) { return t.safetensors == tag; });
}

std::optional<DType> dtype_from_ggml(int ggml_type) {
  if (ggml_type < 0) return std::nullopt;
  return first([&](const DTypeTraits& t) { return t.ggml_type == ggml_type; });
}

}  // namespace danqing
