#include <algorithm>
#include <cmath>

#include "base/try.h"
#include "image/codec.h"
#include "image/convert.h"

namespace danqing {
namespace {

// The source positions that make one target position: `weights` from `first` on, sum 1.
struct Taps {
  int first = 0;
  std::vector<float> weights;
};

double catmull_rom(double x) {
  x = std::fabs(x);
  if (x < 1) return (1.5 * x - 2.5) * x * x + 1;
  return x < 2 ? ((-0.5 * x + 2.5) * x - 4) * x + 2 : 0;
}

Taps taps_of(int target, int from, int to) {
  const double scale = static_cast<double>(from) / to;
  Taps t;
  if (to == from) return {target, {1.0f}};
  if (to < from) {  // share of each source pixel that lies under the target pixel
    const double begin = target * scale, end = (target + 1) * scale;
    t.first = static_cast<int>(begin);
    for (int i = t.first; i < from && i < end; ++i) {
      const double share = std::min<double>(i + 1, end) - std::max<double>(i, begin);
      t.weights.push_back(static_cast<float>(std::max(share, 0.0) / scale));
    }
    return t;
  }
  const double centre = (target + 0.5) * scale - 0.5;
  const int left = static_cast<int>(std::floor(centre)) - 1, last = from - 1;
  t.first = std::clamp(left, 0, last);
  t.weights.resize(static_cast<size_t>(std::clamp(left + 3, 0, last) - t.first) + 1);
  for (int i = left; i < left + 4; ++i)  // positions beyond the edge count for the edge
    t.weights[static_cast<size_t>(std::clamp(i, 0, last) - t.first)] += static_cast<float>(catmull_rom(i - centre));
  return t;
}

std::vector<Taps> all_taps(int from, int to) {
  std::vector<Taps> out;
  for (int i = 0; i < to; ++i) out.push_back(taps_of(i, from, to));
  return out;
}

}  // namespace

Result<Image> resize_image(const Image& image, int width, int height) {
  const auto in_range = [](int v) { return v >= 1 && v <= codec::kMaxSide; };
  if (!in_range(width) || !in_range(height))
    return usage_error("[resize] expected a size of 1x1 to {0}x{0}, got {1}x{2}", codec::kMaxSide, width, height);
  const size_t stride = static_cast<size_t>(std::max(image.width, 0)) * 3;
  if (image.width < 1 || image.height < 1 || image.pixels.size() != stride * static_cast<size_t>(image.height))
    return usage_error("[resize] expected 3*width*height bytes of pixels, got {} for {}x{}", image.pixels.size(),
                       image.width, image.height);
  if (width == image.width && height == image.height) return image;
  const std::vector<Taps> columns = all_taps(image.width, width), rows = all_taps(image.height, height);
  Image out{width, height, std::vector<uint8_t>(size_t{3} * static_cast<size_t>(width) * static_cast<size_t>(height))};
  std::vector<float> mixed(stride);
  uint8_t* target = out.pixels.data();
  for (const Taps& row :
       rows) {  // the rows under a target row are mixed first, so that one row is all the memory needed
    std::fill(mixed.begin(), mixed.end(), 0.0f);
    for (size_t k = 0; k < row.weights.size(); ++k) {
      const uint8_t* source = image.pixels.data() + (static_cast<size_t>(row.first) + k) * stride;
      for (size_t x = 0; x < stride; ++x) mixed[x] += row.weights[k] * static_cast<float>(source[x]);
    }
    for (const Taps& column : columns)
      for (size_t c = 0; c < 3; ++c) {
        float sum = 0;
        for (size_t k = 0; k < column.weights.size(); ++k)
          sum += column.weights[k] * mixed[3 * (static_cast<size_t>(column.first) + k) + c];
        *target++ = static_cast<uint8_t>(std::nearbyint(std::clamp(sum, 0.0f, 255.0f)));
      }
  }
  return out;
}

}  // namespace danqing
