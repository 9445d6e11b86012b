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

/// `x` is the sum; written out, so that every compiler keeps all of them in registers. It must neither drop nor move
/// them.
#define DANQING_STEP(x, step) \
  x = step(x);                \
  __asm__ volatile("" : "+v"(x))
#define DANQING_LOOP(name, isa, type, zero, step)                                               \
  __attribute__((target(isa))) void name(int64_t iterations) {                                  \
    type a = zero, b = a, c = a, d = a, e = a, f = a, g = a, h = a, i = a, j = a, k = a, l = a; \
    for (int64_t n = 0; n < iterations; ++n) {                                                  \
      DANQING_STEP(a, step);                                                                    \
      DANQING_STEP(b, step);                                                                    \
      DANQING_STEP(c, step);                                                                    \
      DANQING_STEP(d, step);                                                                    \
      DANQING_STEP(e, step);                                                                    \
      DANQING_STEP(f, step);                                                                    \
      DANQING_STEP(g, step);                                                                    \
      DANQING_STEP(h, step);                                                                    \
      DANQING_STEP(i, step);                                                                    \
      DANQING_STEP(j, step);                                                                    \
      DANQING_STEP(k, step);                                                                    \
      DANQING_STEP(l, step);                                                                    \
    }                                                                                           \
  }

#define DANQING_F32_512(x) _mm512_fmadd_ps(_mm512_set1_ps(0.5f), _mm512_set1_ps(0.5f), x)
#define DANQING_F32_256(x) _mm256_fmadd_ps(_mm256_set1_ps(0.5f), _mm256_set1_ps(0.5f), x)
#define DANQING_BF16_512(x) \
  _mm512_dpbf16_ps(x, (__m512bh)_mm512_set1_epi32(0x3f003f00), (__m512bh)_mm512_set1_epi32(0x3f003f00))
#define DANQING_I16_512(x) _mm512_dpwssd_epi32(x, _mm512_set1_epi16(3), _mm512_set1_epi16(5))
#define DANQING_I8_512(x) _mm512_dpbusd_epi32(x, _mm512_set1_epi8(3), _mm512_set1_epi8(5))
#define DANQING_I8_256(x) _mm256_dpbusd_avx_epi32(x, _mm256_set1_epi8(3), _mm256_set1_epi8(5))

DANQING_LOOP(f32_512, "avx512f", __m512, _mm512_setzero_ps(), DANQING_F32_512)
DANQING_LOOP(f32_256, "avx2,fma", __m256, _mm256_setzero_ps(), DANQING_F32_256)
DANQING_LOOP(bf16_512, "avx512f,avx512bw,avx512vl,avx512bf16", __m512, _mm512_setzero_ps(), DANQING_BF16_512)
DANQING_LOOP(i16_512, "avx512f,avx512vnni", __m512i, _mm512_setzero_si512(), DANQING_I16_512)
DANQING_LOOP(i8_512, "avx512f,avx512vnni", __m512i, _mm512_setzero_si512(), DANQING_I8_512)
DANQING_LOOP(i8_256, "avx2,avxvnni", __m256i, _mm256_setzero_si256(), DANQING_I8_256)

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
