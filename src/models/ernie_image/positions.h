// What the transformer computes on the host, in torch's order of operations: rotary angles, the time sinusoid, patches.
#pragma once
#include <span>
#include <vector>

#include "models/ernie_image/transformer.h"

namespace danqing::ernie_image {

/// Rotary angles [h*w + text_tokens, head_dim] of one item: image tokens row-major, then text tokens. `h`, `w` count
/// patches. Image token (r, q) stands at (text_length, r, q), text token j at (j, 0, 0); text_tokens >= text_length is
/// the padded length. An axis of d elements has the d/2 angles position * theta^(-2i/d) (Su et al. 2021).
/// Every angle stands twice in a row (a0 a0 a1 a1 ...): the model was trained that way, although it rotates halves.
std::vector<float> rope_angles(const Config& c, int64_t h, int64_t w, int64_t text_length, int64_t text_tokens);

/// Sinusoid [timesteps, width]: all sines, then all cosines of timestep * 10000^(-i/(width/2)) (Vaswani et al. 2017).
/// An odd width ends with a zero.
std::vector<float> time_sinusoid(std::span<const float> timesteps, int64_t width);

/// [B, C, h*p, w*p] -> [B, h*w, C*p*p], a patch in the order channel, row, column (that of a convolution kernel).
std::vector<float> to_patches(const Tensor& latents, int64_t p);
/// [B, h*w, p*p*C] -> [B, C, h*p, w*p], a patch in the order row, column, channel (that of the final linear layer).
Tensor from_patches(std::span<const float> patches, int64_t batch, int64_t channels, int64_t h, int64_t w, int64_t p);

}  // namespace danqing::ernie_image
