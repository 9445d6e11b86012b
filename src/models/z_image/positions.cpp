#include "models/z_image/positions.h"

#include <cmath>

namespace danqing::z_image {
namespace {

constexpr int64_t kSinusoid = 256;

}  // namespace

std::vector<Position> image_positions(int64_t h, int64_t w, int64_t padded_caption) {
  std::vector<Position> out;
  out.reserve(static_cast<size_t>(padded(h * w)));
  for (int64_t r = 0; r < h; ++r)
    for (int64_t q = 0; q < w; ++q) out.push_back({padded_caption + 1, r, q});
  out.resize(static_cast<size_t>(padded(h * w)), Position{0, 0, 0});
  return out;
}

std::vector<Position> caption_positions(int64_t tokens) {
  std::vector<Position> out;
  for (int64_t j = 0; j < tokens; ++j) out.push_back({1 + j, 0, 0});
  return out;
}

RopeTables rope_tables(const Config& c, std::span<const Position> positions) {
  std::vector<std::vector<double>> axes;
  for (int64_t d : c.axes_dims) {
    std::vector<double>& f = axes.emplace_back();
    for (int64_t i = 0; i < d; i += 2)
      f.push_back(1.0 / std::pow(c.rope_theta, static_cast<double>(i) / static_cast<double>(d)));
  }
  RopeTables t;
  t.cos.reserve(positions.size() * static_cast<size_t>(c.head_dim() / 2));
  t.sin.reserve(t.cos.capacity());
  for (const Position& p : positions)
    for (size_t axis = 0; axis < axes.size(); ++axis)
      for (double f : axes[axis]) {
        const auto angle = static_cast<float>(static_cast<double>(p[axis]) * f);
        t.cos.push_back(std::cos(angle));
        t.sin.push_back(std::sin(angle));
      }
  return t;
}

std::vector<float> time_sinusoid(const Config& c, std::span<const float> times) {
  constexpr int64_t half = kSinusoid / 2;
  const float log_base = static_cast<float>(-std::log(10000.0));
  std::vector<float> out(times.size() * static_cast<size_t>(kSinusoid));
  for (int64_t i = 0; i < half; ++i) {
    const float exponent = log_base * static_cast<float>(i) / static_cast<float>(half);
    const float frequency = static_cast<float>(std::exp(static_cast<double>(exponent)));
    for (size_t b = 0; b < times.size(); ++b) {
      const float time = times[b] * static_cast<float>(c.t_scale);
      const double angle = static_cast<double>(time * frequency);
      float* row = out.data() + b * static_cast<size_t>(kSinusoid);
      row[i] = static_cast<float>(std::cos(angle));
      row[half + i] = static_cast<float>(std::sin(angle));
    }
  }
  return out;
}

void append_patches(const Tensor& latents, int64_t p, std::vector<float>& out) {
  const int64_t channels = latents.size(0), height = latents.size(1), width = latents.size(2);
  for (int64_t r = 0; r < height; r += p)
    for (int64_t q = 0; q < width; q += p)
      for (int64_t i = 0; i < p; ++i)
        for (int64_t j = 0; j < p; ++j)
          for (int64_t ch = 0; ch < channels; ++ch)
            out.push_back(latents.data[static_cast<size_t>((ch * height + r + i) * width + q + j)]);
  const int64_t tokens = (height / p) * (width / p), patch = p * p * channels;
  for (int64_t n = tokens; n < padded(tokens); ++n)
    for (int64_t k = 0; k < patch; ++k) out.push_back(out[out.size() - static_cast<size_t>(patch)]);
}

Tensor from_patches(std::span<const float> patches, int64_t channels, int64_t h, int64_t w, int64_t p) {
  Tensor out(Shape{channels, h * p, w * p});
  size_t n = 0;
  for (int64_t r = 0; r < h; ++r)
    for (int64_t q = 0; q < w; ++q)
      for (int64_t i = 0; i < p; ++i)
        for (int64_t j = 0; j < p; ++j)
          for (int64_t ch = 0; ch < channels; ++ch)
            out.data[static_cast<size_t>((ch * h * p + r * p + i) * w * p + q * p + j)] = patches[n++];
  return out;
}

}  // namespace danqing::z_image
