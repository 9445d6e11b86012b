#include <algorithm>
#include <cmath>
#include <numbers>

#include "sampling/random.h"

namespace danqing {
namespace {

constexpr uint64_t kThreads = 256, kPerCall = 4;
using Counter = std::array<uint32_t, 4>;

// Philox 4x32 with 10 rounds (Salmon et al. 2011, section 3): two 32x32-bit products a round, key bumped by Weyl
// constants.
Counter philox(Counter c, uint64_t key) {
  auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round, k0 += 0x9e3779b9u, k1 += 0xbb67ae85u) {
    const uint64_t a = uint64_t{0xd2511f53u} * c[0], b = uint64_t{0xcd9e8d57u} * c[2];
    c = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(b),
         static_cast<uint32_t>(a >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(a)};
  }
  return c;
}

// Box-Muller as cuRAND orders it: sine first. The half unit added to both keeps the logarithm finite.
void normal_pair(uint32_t x, uint32_t y, float* out) {
  constexpr float unit = 0x1p-32f, turn = 2.0f * std::numbers::pi_v<float> * 0x1p-32f;
  const float u = std::fma(static_cast<float>(x), unit, unit / 2);
  const float v = std::fma(static_cast<float>(y), turn, turn / 2);
  const float radius = std::sqrt(-2.0f * std::log(u));
  out[0] = radius * std::sin(v);
  out[1] = radius * std::cos(v);
}

}  // namespace

CudaGenerator::CudaGenerator(uint64_t seed, int block_limit) : seed_(seed), block_limit_(std::max(block_limit, 1)) {}

void CudaGenerator::randn(std::span<float> out, WorkType type) {
  const uint64_t n = out.size();
  if (n == 0) return;
  const uint64_t blocks = std::min<uint64_t>((n + kThreads - 1) / kThreads, static_cast<uint64_t>(block_limit_));
  const uint64_t stride = blocks * kThreads, calls = (n - 1) / (stride * kPerCall) + 1;
  for (uint64_t call = 0; call < calls; ++call) {
    const uint64_t first = call * stride * kPerCall, position = offset_ / kPerCall + call;
    for (uint64_t thread = 0; thread < std::min(stride, n - first); ++thread) {
      const Counter r = philox({static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32),
                                static_cast<uint32_t>(thread), static_cast<uint32_t>(thread >> 32)},
                               seed_);
      float values[kPerCall];
      normal_pair(r[0], r[1], values);
      normal_pair(r[2], r[3], values + 2);
      for (uint64_t i = 0, at = first + thread; i < kPerCall && at < n; ++i, at += stride)
        out[at] = round_to(values[i], type);
    }
  }
  offset_ += calls * kPerCall;
}

std::unique_ptr<NoiseGenerator> make_generator(GeneratorKind kind, uint64_t seed, int block_limit) {
  if (kind == GeneratorKind::cuda) return std::make_unique<CudaGenerator>(seed, block_limit);
  return std::make_unique<CpuGenerator>(seed);
}

}  // namespace danqing
