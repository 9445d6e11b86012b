// Mean and variance of a picture from those of its tiles.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace danqing::vae {

/// Chan, Golub & LeVeque 1983, in f64: joining loses nothing that f32 tiles hold.
class Statistics {
 public:
  /// `tile` [2, C] as nn::channel_statistics gives it, of `pixels` pixels.
  void add(std::span<const float> tile, int64_t pixels);
  /// [2, C] as nn::normalise takes it.
  std::vector<float> finish(int groups, double eps) const;

 private:
  std::vector<double> mean_, squares_;
  double pixels_ = 0;
};

}  // namespace danqing::vae
