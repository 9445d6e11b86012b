// Patches and statistics of FLUX.2 latents, the two constants of others, on the host.
#include <cmath>

#include "models/vae/vae.h"

namespace danqing::vae {
namespace {

/// Applies f(value, channel) to [B, C, h, w].
template <class F>
Tensor per_channel(const Tensor& x, F f) {
  Tensor out = x;
  const size_t channels = static_cast<size_t>(x.size(1)), pixels = static_cast<size_t>(x.size(2) * x.size(3));
  for (size_t i = 0; i < out.data.size(); ++i) out.data[i] = f(out.data[i], i / pixels % channels);
  return out;
}

/// Calls f(packed index, spread index) for [B, C*ph*pw, h, w] and [B, C, h*ph, w*pw].
template <class F>
void for_each_pair(int64_t batch, int64_t channels, int64_t h, int64_t w, int64_t ph, int64_t pw, F f) {
  size_t packed = 0;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t ch = 0; ch < channels; ++ch)
      for (int64_t i = 0; i < ph; ++i)
        for (int64_t j = 0; j < pw; ++j)
          for (int64_t r = 0; r < h; ++r)
            for (int64_t q = 0; q < w; ++q)
              f(packed++, static_cast<size_t>(((b * channels + ch) * h * ph + r * ph + i) * w * pw + q * pw + j));
}

}  // namespace

Tensor unpatchify(const Tensor& x, const std::vector<int64_t>& patch_size) {
  const int64_t ph = patch_size[0], pw = patch_size[1], channels = x.size(1) / (ph * pw), h = x.size(2), w = x.size(3);
  Tensor out(Shape{x.size(0), channels, h * ph, w * pw});
  for_each_pair(x.size(0), channels, h, w, ph, pw,
                [&](size_t packed, size_t spread) { out.data[spread] = x.data[packed]; });
  return out;
}

Tensor patchify(const Tensor& x, const std::vector<int64_t>& patch_size) {
  const int64_t ph = patch_size[0], pw = patch_size[1], h = x.size(2) / ph, w = x.size(3) / pw;
  Tensor out(Shape{x.size(0), x.size(1) * ph * pw, h, w});
  for_each_pair(x.size(0), x.size(1), h, w, ph, pw,
                [&](size_t packed, size_t spread) { out.data[packed] = x.data[spread]; });
  return out;
}

Tensor denormalise(const Tensor& x, const std::vector<float>& mean, const std::vector<float>& std, bool round_to_bf16) {
  if (!round_to_bf16) return per_channel(x, [&](float v, size_t c) { return v * std[c] + mean[c]; });
  // A bf16 pipeline has var + 1e-5 and its root in bf16; the square of the exact root gives the former back.
  std::vector<float> m, s;
  for (float v : mean) m.push_back(round_bf16(v));
  for (float v : std) s.push_back(round_bf16(std::sqrt(round_bf16(v * v))));
  return per_channel(x, [&](float v, size_t c) { return round_bf16(round_bf16(round_bf16(v) * s[c]) + m[c]); });
}

Tensor normalise(const Tensor& x, const std::vector<float>& mean, const std::vector<float>& std) {
  return per_channel(x, [&](float v, size_t c) { return (v - mean[c]) / std[c]; });
}

Tensor unscale(const Tensor& x, const Config& c, bool round_to_bf16) {
  const auto factor = static_cast<float>(c.scaling_factor), shift = static_cast<float>(c.shift_factor);
  Tensor out = x;
  for (float& v : out.data)
    v = round_to_bf16 ? round_bf16(round_bf16(round_bf16(v) / factor) + shift) : v / factor + shift;
  return out;
}

Tensor scale(const Tensor& x, const Config& c) {
  Tensor out = x;
  for (float& v : out.data) v = (v - static_cast<float>(c.shift_factor)) * static_cast<float>(c.scaling_factor);
  return out;
}

}  // namespace danqing::vae
