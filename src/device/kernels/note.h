// What the operations of this folder know of each other while a graph is built: each leaves a note in its tensor.
#pragma once
#include <ggml.h>

#include <cstdint>
#include <cstring>

namespace danqing::kernels {

enum class Made : int32_t {
  other = 0,
  plain = 0x44510001,  ///< src 0 turned over
  norm,                ///< src 0 with the statistics src 1 applied, SiLU if kSilu
  doubled,             ///< src 0, each pixel as 2x2
  conv,                ///< src: picture, kernel, then bias, statistics, residual as the flags say
  pointwise,           ///< any function of single values
  row_norm,  ///< src 0 normalised along its rows (RMS if kRms, else layer norm), then src: weight, bias as the flags
             ///< say
};

/// Lies in the part of op_params that ggml's custom operations leave free.
struct Note {
  static constexpr int32_t kSilu = 1, kBias = 2, kNorm = 4, kResidual = 8, kDoubled = 16, kWeight = 32, kRms = 64;
  Made made = Made::other;
  int32_t flags = 0;
  int32_t stride = 1, left = 0, right = 0, top = 0, bottom = 0;
  float eps = 0;
  int32_t reusable = 0;  ///< bit i: the result may be written over src i
  bool has(int32_t flag) const { return (flags & flag) != 0; }
};

inline constexpr size_t kNoteAt = GGML_MAX_OP_PARAMS - sizeof(Note);
static_assert(kNoteAt >= 3 * sizeof(void*));

inline ggml_tensor* set_note(ggml_tensor* t, const Note& n) {
  std::memcpy(reinterpret_cast<char*>(t->op_params) + kNoteAt, &n, sizeof n);
  return t;
}
inline Note note(const ggml_tensor* t) {
  Note n;
  if (t->op == GGML_OP_CUSTOM) std::memcpy(&n, reinterpret_cast<const char*>(t->op_params) + kNoteAt, sizeof n);
  return n;
}

}  // namespace danqing::kernels
