#include "device/kernels/micro_vnni.h"

#if defined(__x86_64__)
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC's own headers pass "undefined" vectors on
#endif
#include <cpuid.h>
#include <immintrin.h>

#include <cstring>

#define DANQING_VNNI512 __attribute__((target("avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")))
#define DANQING_VNNI256 __attribute__((target("avx2,fma,avxvnni")))
#define DANQING_UNROLL _Pragma("GCC unroll 16")

namespace danqing::kernels {
namespace {

int32_t word(const void* p) {
  int32_t v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

}  // namespace

bool has_vnni512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vnni");
}

bool has_avx_vnni() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __builtin_cpu_supports("avx2") && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & (1u << 4));
}

// Written out: given the intrinsics, GCC 12 moves each of the 24 sums through the stack in every step, at half the speed.
// zmm0 to 23 are the sums of row i in 2i and 2i + 1, zmm24 and 25 B or its scales, zmm26 and 27 values of A.
#define DANQING_ZERO(r) "vpxord %%zmm" #r ", %%zmm" #r ", %%zmm" #r "\n\t"
#define DANQING_STEP(i, r0, r1, t)                         \
  "vpbroadcastd 4*" #i "(%[a]), %%zmm" #t                  \
  "\n\t"                                                   \
  "vpdpwssd %%zmm24, %%zmm" #t ", %%zmm" #r0               \
  "\n\t"                                                   \
  "vpdpwssd %%zmm25, %%zmm" #t ", %%zmm" #r1 "\n\t"
/// c += sums * scale of A * scale of B.
#define DANQING_FLUSH(i, r0, r1)                           \
  "vcvtdq2ps %%zmm" #r0 ", %%zmm" #r0                      \
  "\n\t"                                                   \
  "vcvtdq2ps %%zmm" #r1 ", %%zmm" #r1                      \
  "\n\t"                                                   \
  "vbroadcastss 4*" #i "(%[s]), %%zmm26"                   \
  "\n\t"                                                   \
  "vmulps %%zmm26, %%zmm" #r0 ", %%zmm" #r0                \
  "\n\t"                                                   \
  "vmulps %%zmm26, %%zmm" #r1 ", %%zmm" #r1                \
  "\n\t"                                                   \
  "vfmadd213ps (%[c]), %%zmm24, %%zmm" #r0                 \
  "\n\t"                                                   \
  "vfmadd213ps 64(%[c]), %%zmm25, %%zmm" #r1               \
  "\n\t"                                                   \
  "vmovups %%zmm" #r0 ", (%[c])\n\t"                       \
  "vmovups %%zmm" #r1 ", 64(%[c])\n\t"                     \
  "add %[ldc], %[c]\n\t"

DANQING_VNNI512 void tile_i16_vnni512(int64_t k, const int16_t* a, const float* a_scale, const int16_t* b,
                                      const float* b_scale, float* c, int64_t ldc, bool accumulate) {
  constexpr int kRows = 12, kCols = 32;
  if (!accumulate)
    for (int i = 0; i < kRows; ++i) std::memset(c + i * ldc, 0, kCols * sizeof(float));
  else
    for (int i = 0; i < kRows; ++i) {  // arrives while the first products are formed
      __builtin_prefetch(c + i * ldc, 1);
      __builtin_prefetch(c + i * ldc + 16, 1);
    }
  for (int64_t block = 0; block < k; block += kBlockK) {
    int64_t steps = kBlockK / 2;
    float* row = c;
    __asm__ volatile(
        // clang-format off
        DANQING_ZERO(0) DANQING_ZERO(1) DANQING_ZERO(2) DANQING_ZERO(3) DANQING_ZERO(4) DANQING_ZERO(5)
        DANQING_ZERO(6) DANQING_ZERO(7) DANQING_ZERO(8) DANQING_ZERO(9) DANQING_ZERO(10) DANQING_ZERO(11)
        DANQING_ZERO(12) DANQING_ZERO(13) DANQING_ZERO(14) DANQING_ZERO(15) DANQING_ZERO(16) DANQING_ZERO(17)
        DANQING_ZERO(18) DANQING_ZERO(19) DANQING_ZERO(20) DANQING_ZERO(21) DANQING_ZERO(22) DANQING_ZERO(23)
        ".p2align 5\n"
        "1:\n\t"
        "vmovdqa64 (%[b]), %%zmm24\n\t"
        "vmovdqa64 64(%[b]), %%zmm25\n\t"
        "prefetcht0 1024(%[a])\n\t"  // comes from the second-level cache
        DANQING_STEP(0, 0, 1, 26) DANQING_STEP(1, 2, 3, 27) DANQING_STEP(2, 4, 5, 26) DANQING_STEP(3, 6, 7, 27)
        DANQING_STEP(4, 8, 9, 26) DANQING_STEP(5, 10, 11, 27) DANQING_STEP(6, 12, 13, 26) DANQING_STEP(7, 14, 15, 27)
        DANQING_STEP(8, 16, 17, 26) DANQING_STEP(9, 18, 19, 27) DANQING_STEP(10, 20, 21, 26) DANQING_STEP(11, 22, 23, 27)
        "add $48, %[a]\n\t"
        "add $128, %[b]\n\t"
        "dec %[steps]\n\t"
        "jnz 1b\n\t"
        "vmovaps (%[t]), %%zmm24\n\t"
        "vmovaps 64(%[t]), %%zmm25\n\t"
        DANQING_FLUSH(0, 0, 1) DANQING_FLUSH(1, 2, 3) DANQING_FLUSH(2, 4, 5) DANQING_FLUSH(3, 6, 7)
        DANQING_FLUSH(4, 8, 9) DANQING_FLUSH(5, 10, 11) DANQING_FLUSH(6, 12, 13) DANQING_FLUSH(7, 14, 15)
        DANQING_FLUSH(8, 16, 17) DANQING_FLUSH(9, 18, 19) DANQING_FLUSH(10, 20, 21) DANQING_FLUSH(11, 22, 23)
        // clang-format on
        : [a] "+r"(a), [b] "+r"(b), [c] "+r"(row), [steps] "+r"(steps)
        : [s] "r"(a_scale), [t] "r"(b_scale), [ldc] "r"(ldc * static_cast<int64_t>(sizeof(float)))
        : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12",
          "xmm13", "xmm14", "xmm15", "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24",
          "xmm25", "xmm26", "xmm27", "cc", "memory");
    a_scale += kRows;
    b_scale += kCols;
  }
}

#undef DANQING_ZERO
#undef DANQING_STEP
#undef DANQING_FLUSH

DANQING_VNNI512 void tile_i8_vnni512(int64_t k, const uint8_t* a, const int8_t* b, int32_t* c, int64_t ldc,
                                     bool accumulate) {
  constexpr int kRows = 12, kCols = 32;
  __m512i sum[kRows][2];
  DANQING_UNROLL
  for (int i = 0; i < kRows; ++i) sum[i][0] = sum[i][1] = _mm512_setzero_si512();
  for (int64_t p = 0; p < k; p += 4) {
    const __m512i b0 = _mm512_load_si512(b), b1 = _mm512_load_si512(b + 2 * kCols);
    DANQING_UNROLL
    for (int i = 0; i < kRows; ++i) {
      const __m512i ai = _mm512_set1_epi32(word(a + 4 * i));
      sum[i][0] = _mm512_dpbusd_epi32(sum[i][0], ai, b0);
      sum[i][1] = _mm512_dpbusd_epi32(sum[i][1], ai, b1);
    }
    a += 4 * kRows;
    b += 4 * kCols;
  }
  DANQING_UNROLL
  for (int i = 0; i < kRows; ++i) {
    int32_t* row = c + i * ldc;
    if (accumulate) {
      sum[i][0] = _mm512_add_epi32(sum[i][0], _mm512_loadu_si512(row));
      sum[i][1] = _mm512_add_epi32(sum[i][1], _mm512_loadu_si512(row + 16));
    }
    _mm512_storeu_si512(row, sum[i][0]);
    _mm512_storeu_si512(row + 16, sum[i][1]);
  }
}

/// Integer sums over one block of K, in a function of their own and with the instruction written out: see above.
DANQING_VNNI256 __attribute__((noinline)) static void sum_i16_vnni256(const int16_t* a, const int16_t* b,
                                                                      int32_t* sums) {
  constexpr int kRows = 6, kCols = 16;
  __m256i sum[kRows][2];
  DANQING_UNROLL
  for (int i = 0; i < kRows; ++i) sum[i][0] = sum[i][1] = _mm256_setzero_si256();
  for (int64_t p = 0; p < kBlockK; p += 2) {
    const auto* bv = reinterpret_cast<const __m256i*>(b);
    const __m256i b0 = _mm256_load_si256(bv), b1 = _mm256_load_si256(bv + 1);
    DANQING_UNROLL
    for (int i = 0; i < kRows; ++i) {
      const __m256i ai = _mm256_set1_epi32(word(a + 2 * i));
      __asm__("%{vex%} vpdpwssd %2, %1, %0" : "+x"(sum[i][0]) : "x"(ai), "x"(b0));
      __asm__("%{vex%} vpdpwssd %2, %1, %0" : "+x"(sum[i][1]) : "x"(ai), "x"(b1));
    }
    a += 2 * kRows;
    b += 2 * kCols;
  }
  auto* out = reinterpret_cast<__m256i*>(sums);
  DANQING_UNROLL
  for (int i = 0; i < kRows; ++i) {
    _mm256_store_si256(out + 2 * i, sum[i][0]);
    _mm256_store_si256(out + 2 * i + 1, sum[i][1]);
  }
}

DANQING_VNNI256 void tile_i16_vnni256(int64_t k, const int16_t* a, const float* a_scale, const int16_t* b,
                                      const float* b_scale, float* c, int64_t ldc, bool accumulate) {
  constexpr int kRows = 6, kCols = 16;
  alignas(32) int32_t sums[kRows * kCols];
  const auto* block_sums = reinterpret_cast<const __m256i*>(sums);
  for (int64_t block = 0; block < k; block += kBlockK) {
    sum_i16_vnni256(a, b, sums);
    a += kBlockK * kRows;
    b += kBlockK * kCols;
    const __m256 s0 = _mm256_load_ps(b_scale), s1 = _mm256_load_ps(b_scale + 8);
    b_scale += kCols;
    const bool add = accumulate || block > 0;
    for (int i = 0; i < kRows; ++i) {
      float* row = c + i * ldc;
      const __m256 si = _mm256_set1_ps(a_scale[i]);
      const __m256 c0 = add ? _mm256_loadu_ps(row) : _mm256_setzero_ps();
      const __m256 c1 = add ? _mm256_loadu_ps(row + 8) : _mm256_setzero_ps();
      const __m256 y0 = _mm256_cvtepi32_ps(_mm256_load_si256(block_sums + 2 * i));
      const __m256 y1 = _mm256_cvtepi32_ps(_mm256_load_si256(block_sums + 2 * i + 1));
      _mm256_storeu_ps(row, _mm256_fmadd_ps(_mm256_mul_ps(y0, si), s0, c0));
      _mm256_storeu_ps(row + 8, _mm256_fmadd_ps(_mm256_mul_ps(y1, si), s1, c1));
    }
    a_scale += kRows;
  }
}

DANQING_VNNI256 void tile_i8_vnni256(int64_t k, const uint8_t* a, const int8_t* b, int32_t* c, int64_t ldc,
                                     bool accumulate) {
  constexpr int kRows = 6, kCols = 16;
  __m256i sum[kRows][2];
  DANQING_UNROLL
  for (int i = 0; i < kRows; ++i) sum[i][0] = sum[i][1] = _mm256_setzero_si256();
  for (int64_t p = 0; p < k; p += 4) {
    const auto* bv = reinterpret_cast<const __m256i*>(b);
    const __m256i b0 = _mm256_load_si256(bv), b1 = _mm256_load_si256(bv + 1);
    DANQING_UNROLL
    for (int i = 0; i < kRows; ++i) {
      const __m256i ai = _mm256_set1_epi32(word(a + 4 * i));
      sum[i][0] = _mm256_dpbusd_avx_epi32(sum[i][0], ai, b0);
      sum[i][1] = _mm256_dpbusd_avx_epi32(sum[i][1], ai, b1);
    }
    a += 4 * kRows;
    b += 4 * kCols;
  }
  DANQING_UNROLL
  for (int i = 0; i < kRows; ++i) {
    auto* row = reinterpret_cast<__m256i*>(c + i * ldc);
    if (accumulate) {
      sum[i][0] = _mm256_add_epi32(sum[i][0], _mm256_loadu_si256(row));
      sum[i][1] = _mm256_add_epi32(sum[i][1], _mm256_loadu_si256(row + 1));
    }
    _mm256_storeu_si256(row, sum[i][0]);
    _mm256_storeu_si256(row + 1, sum[i][1]);
  }
}

}  // namespace danqing::kernels
#else
namespace danqing::kernels {
bool has_vnni512() { return false; }
bool has_avx_vnni() { return false; }
void tile_i16_vnni512(int64_t, const int16_t*, const float*, const int16_t*, const float*, float*, int64_t, bool) {}
void tile_i8_vnni512(int64_t, const uint8_t*, const int8_t*, int32_t*, int64_t, bool) {}
void tile_i16_vnni256(int64_t, const int16_t*, const float*, const int16_t*, const float*, float*, int64_t, bool) {}
void tile_i8_vnni256(int64_t, const uint8_t*, const int8_t*, int32_t*, int64_t, bool) {}
}  // namespace danqing::kernels
#endif
