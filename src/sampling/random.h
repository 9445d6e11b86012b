// Torch-exact random numbers, so that a seed gives the picture that diffusers gives.
// Sources: MT19937 (Matsumoto & Nishimura 1998), Philox 4x32-10 (Salmon et al. 2011), Box-Muller; how torch strings
// them together is fixed by the goldens of tests/sampling. Thread rule: a generator belongs to one thread at a time;
// different generators are independent.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/float_bits.h"

namespace danqing {

/// Working dtype whose rounding rules torch's kernels follow.
enum class WorkType { f32, bf16, f16 };

/// x as a value of that dtype: rounded to nearest, ties to even, and widened again.
inline float round_to(float x, WorkType type) {
  if (type == WorkType::bf16) return bf16_to_f32(f32_to_bf16(x));
  if (type == WorkType::f16) return f16_to_f32(f32_to_f16(x));
  return x;
}

/// Where noise comes from.
class NoiseGenerator {
 public:
  virtual ~NoiseGenerator() = default;
  /// Standard normal values as torch.randn(size, dtype) draws them, widened to f32. Advances the stream.
  virtual void randn(std::span<float> out, WorkType type = WorkType::f32) = 0;
};

/// torch.Generator("cpu"): MT19937 seeded with the low 32 bits of the seed.
class CpuGenerator final : public NoiseGenerator {
 public:
  explicit CpuGenerator(uint64_t seed);
  /// Under 16 values: one by one in f64, the sine of each pair kept for later. From 16 on: blocks of 16 in f32, a
  /// remainder draws the last 16 anew. f32 within 5e-7 of torch (log, sin and cos differ by an ulp between libraries).
  void randn(std::span<float> out, WorkType type = WorkType::f32) override;
  void rand(std::span<float> out, WorkType type = WorkType::f32);  ///< uniform [0, 1), 24 bits
  float exponential();                                             ///< -log1p(-u), u of 53 bits, rounded to f32
  uint32_t next_u32();                                             ///< one MT19937 output
  /// torch.multinomial(p, 1): argmax over all entries of p_i / e_i, one exponential per entry (p_i = 0 draws too).
  /// -1 for no entries.
  int64_t draw_one(std::span<const float> probabilities);

 private:
  void twist();
  void fill_uniform24(std::span<float> out);
  double uniform53();
  std::array<uint32_t, 624> state_{};
  int index_ = 624;
  bool has_cached_ = false;
  double cached_ = 0;
};

/// torch.Generator("cuda"): Philox4x32-10 as torch's normal kernel uses it. Blocks of 256 threads, thread t draws four
/// values at a time and writes them to t, t + T, t + 2T, t + 3T where T = 256 * blocks.
/// blocks = min(ceil(n / 256), multiprocessors * (threads per multiprocessor / 256)): **noise of more than 256 * limit
/// values depends on the card**, in torch as here. ERNIE-Image latents have W*H/2 values, so 512x512 (512 blocks) is
/// alike on most cards, while 1024x1024 (2048 blocks) comes out the same only with the limit of the card in question:
/// H100/H200 132*8 = 1056, A100 108*8 = 864, RTX 4090 128*6 = 768, RTX 3090 82*6 = 492.
/// sin, cos and log are the host's: within 1e-6 of the card's. Proven only against six known values of seed 0.
class CudaGenerator final : public NoiseGenerator {
 public:
  static constexpr int kDefaultBlockLimit = 1056;  ///< H100/H200
  explicit CudaGenerator(uint64_t seed, int block_limit = kDefaultBlockLimit);
  void randn(std::span<float> out, WorkType type = WorkType::f32) override;

 private:
  uint64_t seed_, offset_ = 0;
  int block_limit_;
};

enum class GeneratorKind { cpu, cuda };
/// `block_limit` is for cuda only.
std::unique_ptr<NoiseGenerator> make_generator(GeneratorKind kind, uint64_t seed,
                                               int block_limit = CudaGenerator::kDefaultBlockLimit);

}  // namespace danqing
