// Between network values and pixels.
#pragma once
#include "base/tensor.h"
#include "danqing/image.h"
#include "sampling/random.h"

namespace danqing {

/// [B, 3, H, W] decoder output to pictures: x/2 + 0.5, clamped to 0..1 in the working dtype, times 255, rounded half to even.
/// NaN or Inf anywhere is an Error that says so (never a black picture).
Result<std::vector<Image>> to_images(const Tensor& decoded, WorkType type = WorkType::f32);
/// A picture to [1, 3, H, W] in -1..1 for the encoder.
Tensor from_image(const Image& image);
/// Area-averaged or bicubic resize (Catmull-Rom), exact at the identity.
Result<Image> resize_image(const Image& image, int width, int height);

}  // namespace danqing
