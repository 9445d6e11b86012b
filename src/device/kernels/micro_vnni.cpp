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

/// Integer sums over one block of K. Written so that GCC 12 keeps the sums in registers: given the intrinsic, or with
/// the scaling in the same function, it moves every sum through the stack in every step, at half the speed.
DANQING_VNNI512 __attribute__((noinline)) static void sum_i16_vnni512(const int16_t* a, const int16_t* b,
                                                                      int32_t* sums) {
  constexpr int kRows = 12, kCols = 32;
  __m512i sum[kRows][2];
  DANQING_UNROLL
  for (int i = 0; i < kRows; ++i) sum[i][0] = sum[i][1] = _mm512_setzero_si512();
  for (int64_t p = 0; p < kBlockK; p += 2) {
    const __m512i b0 = _mm512_load_si512(b), b1 = _mm512_load_si512(b + kCols);
    DANQING_UNROLL
    for (int i = 0; i < kRows; ++i) {
      const __m512i ai = _mm512_set1_epi32(word(a + 2 * i));
      __asm__("vpdpwssd %2, %1, %0" : "+v"(sum[i][0]) : "v"(ai), "v"(b0));
      __asm__("vpdpwssd %2, %1, %0" : "+v"(sum[i][1]) : "v"(ai), "v"(b1));
    }
    a += 2 * kRows;
    b += 2 * kCols;
  }
  DANQING_UNROLL
  for (int i = 0; i < kRows; ++i) {
    _mm512_store_si512(sums + i * kCols, sum[i][0]);
    _mm512_store_si512(sums + i * kCols + 16, sum[i][1]);
  }
}

DANQING_VNNI512 void tile_i16_vnni512(int64_t k, const int16_t* a, const float* a_scale, const int16_t* b,
                                      const float* b_scale, float* c, int64_t ldc, bool accumulate) {
  constexpr int kRows = 12, kCols = 32;
  alignas(64) int32_t sums[kRows * kCols];
  for (int64_t block = 0; block < k; block += kBlockK) {
    sum_i16_vnni512(a, b, sums);
    a += kBlockK * kRows;
    b += kBlockK * kCols;
    const __m512 s0 = _mm512_load_ps(b_scale), s1 = _mm512_load_ps(b_scale + 16);
    b_scale += kCols;
    const bool add = accumulate || block > 0;
    for (int i = 0; i < kRows; ++i) {
      float* row = c + i * ldc;
      const __m512 si = _mm512_set1_ps(a_scale[i]);
      const __m512 c0 = add ? _mm512_loadu_ps(row) : _mm512_setzero_ps();
      const __m512 c1 = add ? _mm512_loadu_ps(row + 16) : _mm512_setzero_ps();
      const __m512 y0 = _mm512_cvtepi32_ps(_mm512_load_si512(sums + i * kCols));
      const __m512 y1 = _mm512_cvtepi32_ps(_mm512_load_si512(sums + i * kCols + 16));
      _mm512_storeu_ps(row, _mm512_fmadd_ps(_mm512_mul_ps(y0, si), s0, c0));
      _mm512_storeu_ps(row + 16, _mm512_fmadd_ps(_mm512_mul_ps(y1, si), s1, c1));
    }
    a_scale += kRows;
  }
}

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

/// As sum_i16_vnni512, for the same reason.
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
