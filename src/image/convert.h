// Between network values and pixels. Pure functions; any number of threads.
#pragma once
#include "base/tensor.h"
#include "danqing/image.h"
#include "sampling/random.h"

namespace danqing {

/// [B, 3, H, W] decoder output to pictures: x/2 + 0.5, clamped to 0..1 in the working dtype, times 255, rounded half to
/// even. NaN or Inf anywhere is an Error that says so (never a black picture).
Result<std::vector<Image>> to_images(const Tensor& decoded, WorkType type = WorkType::f32);
/// A picture to [1, 3, H, W] in -1..1 for the encoder: v/255*2 - 1. An inconsistent image gives an empty tensor of
/// shape [0].
Tensor from_image(const Image& image);
/// New size of 1x1 to 16384x16384. Each axis by itself: area average where it shrinks, Catmull-Rom (Keys 1981, a =
/// -0.5) where it grows, untouched where it stays; on the stored (sRGB) values.
Result<Image> resize_image(const Image& image, int width, int height);

}  // namespace danqing
