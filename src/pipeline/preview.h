// Cheap previews: a linear map from VAE latents to colours, one pixel a latent (8x8 pixels of the picture).
// A VAE's latents are close to a linear code of local colour, so least squares over pictures of that VAE gives it.
// The map comes from latent_rgb.json beside the VAE's weights where there is one, and is learned from the pictures that
// this engine decodes: any VAE has previews, and they follow the pictures at hand. One thread at a time.
#pragma once
#include <array>
#include <filesystem>
#include <vector>

#include "base/json.h"
#include "base/tensor.h"
#include "danqing/image.h"

namespace danqing {

class LatentPreview {
 public:
  /// {"latent_channels": C, "factors": [[r, g, b] x C], "bias": [r, g, b]}: colour in -1..1 = factors^T z + bias.
  static Result<LatentPreview> parse(const Json& json, const std::string& where);
  /// The same JSON; what is stored beside the weights.
  Json to_json() const;

  /// One more example: latents z [1, C, h, w] and what the VAE made of them [1, 3, s*h, s*w]. Older examples fade, so
  /// memory and time per example stay constant. Ignored if the shapes do not fit together.
  void learn(const Tensor& z, const Tensor& decoded);
  /// Whether there is a map for that many channels.
  bool ready(int64_t channels) const { return channels_ == channels && !map_.empty(); }
  bool ready_for_any() const { return !map_.empty(); }
  /// z [1, C, h, w] -> a picture of w x h pixels; empty when not ready.
  Image draw(const Tensor& z) const;

 private:
  void solve();
  int64_t channels_ = 0;
  std::vector<std::array<double, 3>> map_;  // channels_ factors, then the bias
  // Sums of the normal equations: a = sum x x^T (row-major, n x n), b = sum x y^T, for x = (z, 1).
  std::vector<double> a_;
  std::vector<std::array<double, 3>> b_;
};

}  // namespace danqing
