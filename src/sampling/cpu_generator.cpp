#include <cmath>
#include <numbers>

#include "sampling/random.h"

namespace danqing {
namespace {

constexpr size_t kBlock = 16;  // torch's normal fill works on blocks of this size

// Box-Muller on one block of 24-bit uniforms: element j with element j + 8.
void to_normals(float* block) {
  for (size_t j = 0; j < kBlock / 2; ++j) {
    const float radius = std::sqrt(-2.0f * std::log(1.0f - block[j]));
    const float angle = 2.0f * std::numbers::pi_v<float> * block[j + kBlock / 2];
    block[j] = radius * std::cos(angle);
    block[j + kBlock / 2] = radius * std::sin(angle);
  }
}

}  // namespace

CpuGenerator::CpuGenerator(uint64_t seed) {
  state_[0] = static_cast<uint32_t>(seed);
  for (uint32_t i = 1; i < state_.size(); ++i) state_[i] = 1812433253u * (state_[i - 1] ^ (state_[i - 1] >> 30)) + i;
}

void CpuGenerator::twist() {
  constexpr int n = 624, m = 397;
  const auto mix = [](uint32_t high, uint32_t low) {
    const uint32_t y = (high & 0x80000000u) | (low & 0x7fffffffu);
    return (y >> 1) ^ ((0u - (y & 1u)) & 0x9908b0dfu);
  };
  for (int k = 0; k < n - m; ++k) state_[k] = state_[k + m] ^ mix(state_[k], state_[k + 1]);
  for (int k = n - m; k < n - 1; ++k) state_[k] = state_[k + m - n] ^ mix(state_[k], state_[k + 1]);
  state_[n - 1] = state_[m - 1] ^ mix(state_[n - 1], state_[0]);
  index_ = 0;
}

uint32_t CpuGenerator::next_u32() {
  if (index_ == 624) twist();
  uint32_t y = state_[static_cast<size_t>(index_++)];
  y ^= y >> 11;
  y ^= (y << 7) & 0x9d2c5680u;
  y ^= (y << 15) & 0xefc60000u;
  return y ^ (y >> 18);
}

double CpuGenerator::uniform53() {
  const uint64_t high = next_u32();
  const uint64_t bits = (high << 32 | next_u32()) & ((uint64_t{1} << 53) - 1);
  return static_cast<double>(bits) * 0x1p-53;
}

void CpuGenerator::fill_uniform24(std::span<float> out) {
  for (float& x : out) x = static_cast<float>(next_u32() & 0xffffffu) * 0x1p-24f;
}

void CpuGenerator::rand(std::span<float> out, WorkType type) {
  fill_uniform24(out);
  if (type == WorkType::f32) return;
  for (float& x : out) {
    x = round_to(x, type);
    if (x >= 1.0f) x = 0.0f;  // the interval is half open: torch gives its lower end for what would round to 1
  }
}

void CpuGenerator::randn(std::span<float> out, WorkType type) {
  const size_t n = out.size();
  if (n < kBlock) {
    for (float& x : out) {
      if (!has_cached_) {
        const double u = uniform53(), v = uniform53();
        const double radius = std::sqrt(-2.0 * std::log1p(-v)), angle = 2.0 * std::numbers::pi * u;
        x = static_cast<float>(radius * std::cos(angle));
        cached_ = radius * std::sin(angle);
      } else {
        x = static_cast<float>(cached_);
      }
      has_cached_ = !has_cached_;
    }
  } else {
    const size_t whole = n - n % kBlock;
    // The half types draw nothing for the incomplete block, so that their stream is another one from there on.
    fill_uniform24(out.first(type == WorkType::f32 ? n : whole));
    for (size_t i = 0; i < whole; i += kBlock) to_normals(out.data() + i);
    if (whole != n) {
      const std::span<float> tail = out.last(kBlock);
      fill_uniform24(tail);
      to_normals(tail.data());
    }
  }
  if (type == WorkType::f32) return;
  for (float& x : out) x = round_to(x, type);
}

float CpuGenerator::exponential() { return static_cast<float>(-std::log1p(-uniform53())); }

int64_t CpuGenerator::draw_one(std::span<const float> probabilities) {
  int64_t best = -1;
  float best_value = -1;
  for (size_t i = 0; i < probabilities.size(); ++i) {
    float value = probabilities[i] / exponential();
    if (std::isnan(value)) value = 0;  // 0/0: an entry that cannot be drawn
    if (value > best_value) best = static_cast<int64_t>(i), best_value = value;
  }
  return best;
}

}  // namespace danqing
