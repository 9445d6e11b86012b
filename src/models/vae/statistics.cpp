#include "models/vae/statistics.h"

#include <cmath>

namespace danqing::vae {

void Statistics::add(std::span<const float> tile, int64_t pixels) {
  const size_t c = tile.size() / 2;
  const auto n = static_cast<double>(pixels);
  mean_.resize(c), squares_.resize(c);
  for (size_t i = 0; i < c; ++i) {
    const double apart = static_cast<double>(tile[i]) - mean_[i];
    mean_[i] += apart * n / (pixels_ + n);
    squares_[i] += static_cast<double>(tile[c + i]) + apart * apart * pixels_ * n / (pixels_ + n);
  }
  pixels_ += n;
}

std::vector<float> Statistics::finish(int groups, double eps) const {
  const size_t c = mean_.size(), each = c / static_cast<size_t>(groups);
  std::vector<float> out(2 * c);
  for (size_t first = 0; first < c; first += each) {
    double mean = 0, squares = 0;
    for (size_t i = first; i < first + each; ++i) mean += mean_[i] / static_cast<double>(each);
    for (size_t i = first; i < first + each; ++i)
      squares += squares_[i] + pixels_ * (mean_[i] - mean) * (mean_[i] - mean);
    const double factor = 1 / std::sqrt(squares / (pixels_ * static_cast<double>(each)) + eps);
    for (size_t i = first; i < first + each; ++i) {
      out[i] = static_cast<float>(mean);
      out[c + i] = static_cast<float>(factor);
    }
  }
  return out;
}

}  // namespace danqing::vae
