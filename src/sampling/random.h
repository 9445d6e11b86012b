// Torch-exact random numbers, so that a seed gives the picture that diffusers gives.
// Source: ../shared fixtures page, section "Random numbers"; MT19937 (Matsumoto & Nishimura 1998), Philox 4x32-10
// (Salmon et al. 2011), Box-Muller.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace danqing {

/// Working dtype whose rounding rules torch's kernels follow.
enum class WorkType { f32, bf16, f16 };

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
  void randn(std::span<float> out, WorkType type = WorkType::f32) override;
  void rand(std::span<float> out, WorkType type = WorkType::f32);   ///< uniform [0, 1), 24 bits
  float exponential();                                              ///< -log1p(-u), u of 53 bits, rounded to f32
  uint32_t next_u32();                                              ///< one MT19937 output
  /// torch.multinomial(p, 1): argmax over all entries of p_i / e_i, one exponential per entry (p_i = 0 draws too).
  int64_t draw_one(std::span<const float> probabilities);

 private:
  void twist();
  double uniform53();
  std::array<uint32_t, 624> state_{};
  int index_ = 624;
  bool has_cached_ = false;
  double cached_ = 0;
};

/// torch.Generator("cuda"): Philox4x32-10 as torch's normal kernel uses it (grid of 256-thread blocks, four values a call).
class CudaGenerator final : public NoiseGenerator {
 public:
  explicit CudaGenerator(uint64_t seed);
  void randn(std::span<float> out, WorkType type = WorkType::f32) override;

 private:
  uint64_t seed_, offset_ = 0;
};

enum class GeneratorKind { cpu, cuda };
std::unique_ptr<NoiseGenerator> make_generator(GeneratorKind kind, uint64_t seed);

}  // namespace danqing
