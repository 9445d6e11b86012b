// The innermost loops of every matrix product on the CPU: one tile of C from a packed strip of A and a packed strip of
// B. Everything else (packing, blocking, threads) is in gemm.h. One table for each instruction set, chosen at run time.
#pragma once
#include <cstdint>
#include <optional>

namespace danqing::kernels {

/// Values along K that share one scale in the int16 format, and its largest magnitude: 128 products of two 12-bit
/// magnitudes still fit an int32 (128 * 4095^2 < 2^31), so the integer sums are exact.
inline constexpr int64_t kBlockK = 128;
inline constexpr int kMaxI16 = 4095;
/// The int8 format (W8A8): activations are unsigned with this zero point, so that the processor's u8 x s8 products
/// serve.
inline constexpr int kZeroI8 = 128;

/// The number formats in which products are computed.
enum class Format {
  f32,  ///< float times float
  i16,  ///< 12-bit integers, one scale for 128 values along K; finer than bf16 and twice as fast as f32 where VNNI is
  i8,   ///< 8-bit integers, one scale for a whole row: W8A8
};

/// Packed layouts. A strip of A: [K / p][mr][p], a strip of B: [K / p][nr][p], p = 1 (f32), 2 (i16), 4 (i8).
/// Scales of i16: A [K / 128][mr], B [K / 128][nr]. Tiles are written whole: C has room for mr rows of nr values.
struct MicroKernels {
  const char* name;  ///< "AVX2", "AVX512", "AVX512-VNNI"
  int mr = 0, nr = 0;
  /// c[mr][ldc] (+)= A B over k values.
  void (*f32)(int64_t k, const float* a, const float* b, float* c, int64_t ldc, bool accumulate) = nullptr;
  /// The same with scales; k is a multiple of 128.
  void (*i16)(int64_t k, const int16_t* a, const float* a_scale, const int16_t* b, const float* b_scale, float* c,
              int64_t ldc, bool accumulate) = nullptr;
  /// Integer sums of u8 x s8; k is a multiple of 4.
  void (*i8)(int64_t k, const uint8_t* a, const int8_t* b, int32_t* c, int64_t ldc, bool accumulate) = nullptr;
};

/// $DANQING_CPU_ISA (avx2, avx2-vnni, avx512, avx512-vnni) keeps the kernels to lesser instructions than the processor has: to
/// compare, or where the wide ones are slow. Empty when it holds something else.
enum class InstructionSet { any, avx512, avx2_vnni, avx2 };
std::optional<InstructionSet> allowed_instruction_set();

/// Of the processor this runs on. Null members where it has no such kernel; null when it has none at all.
const MicroKernels* micro_kernels();

/// For tests: the tables for lesser instruction sets that this processor can run too, best first.
const MicroKernels* const* all_micro_kernels(int* count);

}  // namespace danqing::kernels
