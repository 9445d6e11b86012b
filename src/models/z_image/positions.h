// What the transformer computes on the host, in torch's order of operations: positions, RoPE tables, the time sinusoid,
// patches.
#pragma once
#include <array>
#include <span>
#include <vector>

#include "models/z_image/transformer.h"

namespace danqing::z_image {

/// A token's place on the three RoPE axes.
using Position = std::array<int64_t, 3>;
/// Image token (r, q) of h x w patches, row-major, stands at (padded caption length + 1, r, q), the tokens that pad the
/// image at (0, 0, 0).
std::vector<Position> image_positions(int64_t h, int64_t w, int64_t padded_caption);
/// Caption token j stands at (1 + j, 0, 0), through its padding: `tokens` of them.
std::vector<Position> caption_positions(int64_t tokens);

/// cos and sin [positions, head_dim / 2] of the angles: an axis of d elements has the d/2 angles
/// position * theta^(-2i/d) (Su et al. 2021), computed in f64 and rounded once.
struct RopeTables {
  std::vector<float> cos, sin;
};
RopeTables rope_tables(const Config& c, std::span<const Position> positions);

/// Sinusoid [times, 256]: all cosines, then all sines of t_scale * time * 10000^(-i/128) (Vaswani et al. 2017).
std::vector<float> time_sinusoid(const Config& c, std::span<const float> times);

/// [C, h*p, w*p] -> [padded(h*w), p*p*C] appended to `out`: patches row-major, each in the order row, column, channel;
/// the last one is repeated as padding, which the model replaces after embedding.
void append_patches(const Tensor& latents, int64_t p, std::vector<float>& out);
/// The first h*w rows of [padded(h*w), p*p*C] -> [C, h*p, w*p].
Tensor from_patches(std::span<const float> patches, int64_t channels, int64_t h, int64_t w, int64_t p);

}  // namespace danqing::z_image
