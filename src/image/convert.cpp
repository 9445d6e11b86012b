#include "image/convert.h"

#include <algorithm>
#include <cmath>

#include "base/try.h"

namespace danqing {

Result<std::vector<Image>> to_images(const Tensor& decoded, WorkType type) {
  const Shape& s = decoded.shape;
  const bool sound = s.size() == 4 && s[1] == 3 && s[2] > 0 && s[3] > 0 && s[2] <= INT32_MAX && s[3] <= INT32_MAX;
  if (!sound || decoded.count() != element_count(s))
    return fail(ErrorCode::failed, "[image] expected decoded values of shape [B, 3, H, W], got {}", to_string(s));
  const size_t plane = static_cast<size_t>(s[2]) * static_cast<size_t>(s[3]);
  std::vector<Image> images;
  for (int64_t b = 0; b < s[0]; ++b) {
    Image image{static_cast<int>(s[3]), static_cast<int>(s[2]), std::vector<uint8_t>(3 * plane)};
    const float* values = decoded.data.data() + static_cast<size_t>(b) * 3 * plane;
    for (size_t c = 0; c < 3; ++c)
      for (size_t i = 0; i < plane; ++i) {
        const float x = values[c * plane + i];
        if (!std::isfinite(x))
          return fail(ErrorCode::failed,
                      "[image] expected finite values from the decoder, got {} in picture {}; try another compute type",
                      x, b);
        const float unit = std::clamp(round_to(round_to(x * 0.5f, type) + 0.5f, type), 0.0f, 1.0f);
        image.pixels[3 * i + c] = static_cast<uint8_t>(std::nearbyint(unit * 255.0f));
      }
    images.push_back(std::move(image));
  }
  return images;
}

Tensor from_image(const Image& image) {
  const size_t plane = static_cast<size_t>(std::max(image.width, 0)) * static_cast<size_t>(std::max(image.height, 0));
  if (plane == 0 || image.pixels.size() != 3 * plane) return Tensor(Shape{0});
  Tensor t(Shape{1, 3, image.height, image.width});
  for (size_t c = 0; c < 3; ++c)
    for (size_t i = 0; i < plane; ++i)
      t.data[c * plane + i] = static_cast<float>(image.pixels[3 * i + c]) / 255.0f * 2.0f - 1.0f;
  return t;
}

}  // namespace danqing
