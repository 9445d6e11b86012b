#include "peak_registers.h"

#if defined(__x86_64__)
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC's own headers pass "undefined" vectors on
#endif
#include <cpuid.h>
#include <immintrin.h>

namespace danqing::peak {
namespace {

constexpr int kSums = 12;  // independent ones: more than latency times units

/// The compiler must neither drop nor move the sums.
#define DANQING_KEEP(x) __asm__ volatile("" : "+v"(x))
#define DANQING_LOOP(name, isa, type, start, step)               \
  __attribute__((target(isa))) void name(int64_t iterations) {   \
    type sum[kSums];                                             \
    for (type & s : sum) s = start;                              \
    for (int64_t i = 0; i < iterations; ++i) {                   \
      _Pragma("GCC unroll 12") for (int j = 0; j < kSums; ++j) { \
        sum[j] = step;                                           \
        DANQING_KEEP(sum[j]);                                    \
      }                                                          \
    }                                                            \
  }

DANQING_LOOP(f32_512, "avx512f", __m512, _mm512_setzero_ps(),
             _mm512_fmadd_ps(_mm512_set1_ps(0.5f), _mm512_set1_ps(0.5f), sum[j]))
DANQING_LOOP(f32_256, "avx2,fma", __m256, _mm256_setzero_ps(),
             _mm256_fmadd_ps(_mm256_set1_ps(0.5f), _mm256_set1_ps(0.5f), sum[j]))
DANQING_LOOP(bf16_512, "avx512f,avx512bw,avx512vl,avx512bf16", __m512, _mm512_setzero_ps(),
             _mm512_dpbf16_ps(sum[j], (__m512bh)_mm512_set1_epi32(0x3f003f00), (__m512bh)_mm512_set1_epi32(0x3f003f00)))
DANQING_LOOP(i16_512, "avx512f,avx512vnni", __m512i, _mm512_setzero_si512(),
             _mm512_dpwssd_epi32(sum[j], _mm512_set1_epi16(3), _mm512_set1_epi16(5)))
DANQING_LOOP(i8_512, "avx512f,avx512vnni", __m512i, _mm512_setzero_si512(),
             _mm512_dpbusd_epi32(sum[j], _mm512_set1_epi8(3), _mm512_set1_epi8(5)))
DANQING_LOOP(i8_256, "avx2,avxvnni", __m256i, _mm256_setzero_si256(),
             _mm256_dpbusd_avx_epi32(sum[j], _mm256_set1_epi8(3), _mm256_set1_epi8(5)))

/// Bit of a register of CPUID leaf 7.
bool leaf7(int subleaf, int reg, int bit) {
  unsigned r[4] = {};
  return __get_cpuid_count(7, static_cast<unsigned>(subleaf), &r[0], &r[1], &r[2], &r[3]) && ((r[reg] >> bit) & 1u);
}

}  // namespace

std::vector<RegisterLoop> register_loops() {
  std::vector<RegisterLoop> all;
  const bool wide =
      __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  if (wide) {
    all.push_back({"f32", "vfmadd231ps 512", 2.0 * 16 * kSums, f32_512});
    if (leaf7(1, 0, 5)) all.push_back({"bf16", "vdpbf16ps 512", 2.0 * 32 * kSums, bf16_512});
    if (__builtin_cpu_supports("avx512vnni")) {
      all.push_back({"i16", "vpdpwssd 512", 2.0 * 32 * kSums, i16_512});
      all.push_back({"i8", "vpdpbusd 512", 2.0 * 64 * kSums, i8_512});
    }
  } else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    all.push_back({"f32", "vfmadd231ps 256", 2.0 * 8 * kSums, f32_256});
    if (leaf7(1, 0, 4)) all.push_back({"i8", "vpdpbusd 256", 2.0 * 32 * kSums, i8_256});
  }
  return all;
}

}  // namespace danqing::peak
#else
namespace danqing::peak {
std::vector<RegisterLoop> register_loops() { return {}; }
}  // namespace danqing::peak
#endif
