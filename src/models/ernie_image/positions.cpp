#include "models/ernie_image/positions.h"

#include <cmath>

namespace danqing::ernie_image {
namespace {

// Both powers are rounded once from f64: torch's are within one unit in the last place of that.
std::vector<float> frequencies(double theta, int64_t d) {
  std::vector<float> f;
  for (int64_t i = 0; i < d; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(d);
    f.push_back(1.0f / static_cast<float>(std::pow(theta, static_cast<double>(exponent))));
  }
  return f;
}

}  // namespace

std::vector<float> rope_angles(const Config& c, int64_t h, int64_t w, int64_t text_length, int64_t text_tokens) {
  std::vector<std::vector<float>> axes;
  for (int64_t d : c.rope_axes_dim) axes.push_back(frequencies(c.rope_theta, d));
  std::vector<float> angles;
  angles.reserve(static_cast<size_t>((h * w + text_tokens) * c.head_dim()));
  const auto token = [&](int64_t a, int64_t b, int64_t e) {
    const int64_t position[3] = {a, b, e};
    for (size_t axis = 0; axis < 3; ++axis) {
      for (float f : axes[axis]) angles.insert(angles.end(), 2, static_cast<float>(position[axis]) * f);
    }
  };
  for (int64_t r = 0; r < h; ++r)
    for (int64_t q = 0; q < w; ++q) token(text_length, r, q);
  for (int64_t j = 0; j < text_tokens; ++j) token(j, 0, 0);
  return angles;
}

std::vector<float> time_sinusoid(std::span<const float> timesteps, int64_t width) {
  const int64_t half = width / 2;
  const float log_base = static_cast<float>(-std::log(10000.0));
  std::vector<float> out(timesteps.size() * static_cast<size_t>(width), 0.0f);
  for (int64_t i = 0; i < half; ++i) {
    const float exponent = log_base * static_cast<float>(i) / static_cast<float>(half);
    const float frequency = static_cast<float>(std::exp(static_cast<double>(exponent)));
    for (size_t b = 0; b < timesteps.size(); ++b) {
      const double angle = static_cast<double>(timesteps[b] * frequency);
      float* row = out.data() + b * static_cast<size_t>(width);
      row[i] = static_cast<float>(std::sin(angle));
      row[half + i] = static_cast<float>(std::cos(angle));
    }
  }
  return out;
}

std::vector<float> to_patches(const Tensor& latents, int64_t p) {
  const int64_t batch = latents.size(0), channels = latents.size(1), height = latents.size(2), width = latents.size(3);
  std::vector<float> out;
  out.reserve(latents.data.size());
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t r = 0; r < height; r += p)
      for (int64_t q = 0; q < width; q += p)
        for (int64_t ch = 0; ch < channels; ++ch)
          for (int64_t i = 0; i < p; ++i) {
            const auto row = latents.data.begin() + ((b * channels + ch) * height + r + i) * width + q;
            out.insert(out.end(), row, row + p);
          }
  return out;
}

Tensor from_patches(std::span<const float> patches, int64_t batch, int64_t channels, int64_t h, int64_t w, int64_t p) {
  Tensor out(Shape{batch, channels, h * p, w * p});
  size_t n = 0;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t r = 0; r < h; ++r)
      for (int64_t q = 0; q < w; ++q)
        for (int64_t i = 0; i < p; ++i)
          for (int64_t j = 0; j < p; ++j)
            for (int64_t ch = 0; ch < channels; ++ch)
              out.data[static_cast<size_t>(((b * channels + ch) * h * p + r * p + i) * w * p + q * p + j)] =
                  patches[n++];
  return out;
}

}  // namespace danqing::ernie_image
