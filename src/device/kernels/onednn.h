// oneDNN, for what it does better than our own tiles: products in bf16 on processors with matrix units (AMX). The .cpp
// is the only file that includes the library; without it everything here says "absent". Nothing throws.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "device/kernels/pool.h"

namespace danqing::kernels {

/// Linked, and built for OpenMP or without threads (its other kinds of threads cannot be kept out of ours).
bool onednn_available();
/// "2.6.3 (avx512_core_bf16)": version and the instruction set it uses here; or "absent".
std::string onednn_text();
/// Whether this processor multiplies bf16 many times faster than f32: it has AMX, and oneDNN may use it.
bool onednn_prefers_bf16();

/// C = A W^T, A [m, k] f32 rounded to bf16 at each call, W [n, k] bf16 used where it lies, sums and C [m, n] in f32.
/// The split into slices depends on the shape alone, so the result does not depend on the number of threads.
class Bf16Product {
 public:
  /// As gemm.h's: what happens to finished values of row m, columns n to n + count - 1. May be empty.
  using Finish = std::function<void(int64_t m, int64_t n, int64_t count, float* values)>;

  /// `w_row_bytes` from one row of W to the next. Null where oneDNN is absent, or has nothing fast for this.
  static std::shared_ptr<const Bf16Product> create(int64_t m, int64_t n, int64_t k, size_t w_row_bytes);
  virtual ~Bf16Product() = default;
  /// Bytes that run() needs, aligned to 64, for a pool of `threads`.
  virtual size_t scratch(int threads) const = 0;
  /// Slices that fail, which is not expected, are filled with NaN: the caller's check of its results finds them.
  virtual void run(Pool& pool, const float* a, const std::byte* w, float* c, std::byte* scratch,
                   const Finish& finish) const = 0;
};

/// For benchmarks: the best of `repetitions` of oneDNN's own product of [m, k] by [k, n] on `threads` threads, with
/// weights in the layout it likes best. Seconds; 0 when it cannot.
enum class OnednnType { f32, bf16, u8s8 };
double onednn_seconds(OnednnType type, int64_t m, int64_t n, int64_t k, int threads, int repetitions);

}  // namespace danqing::kernels
