// Inner loops of convolutions over pixels whose channels lie side by side: products of rows with a packed kernel, the
// transforms of the minimal filtering algorithm F(2x2, 3x3) (Lavin & Gray 2016, after Winograd 1980), and what stands
// before and after them. Vectorised for the processor it runs on.
#pragma once
#include <cstdint>

namespace danqing::kernels {

/// Channels of a prepared pixel are padded with zeros to a multiple of this: no vector is wider.
inline constexpr int64_t kChannelBlock = 16;
inline int64_t padded_channels(int64_t c) { return (c + kChannelBlock - 1) / kChannelBlock * kChannelBlock; }

/// (x - mean) * factor + shift for each channel, then SiLU if wanted.
struct ChannelNorm {
  const float *mean, *factor, *shift;
  bool silu;
};
/// `pixels` pixels of c channels, normalised if `norm` is given, to `out`, `stride` values apart. The values between c
/// and padded_channels(c) become zero, as far as the stride has room for them.
void prepare_pixels(const float* x, int64_t pixels, int64_t c, const ChannelNorm* norm, float* out, int64_t stride);

/// Rows and columns of C that product() computes at a time.
struct ProductTile {
  int64_t rows, cols;
};
ProductTile product_tile();
/// C (+)= A B: A `rows` (a multiple of tile.rows) rows of k values, lda apart; B one strip [k][tile.cols].
void product(int64_t rows, int64_t k, const float* a, int64_t lda, const float* b, float* c, int64_t ldc, bool add);

/// B^T d B of the 4x4 pixels that begin at rows[0..3]: 16 results of c (padded) channels, `plane` values apart.
void winograd_input(const float* const rows[4], int64_t c, float* out, int64_t plane);
/// The same where d is the 3x3 pixels at rows[0..2] doubled around the middle one, without what is always zero: 9
/// results.
void winograd_input_doubled(const float* const rows[3], int64_t c, float* out, int64_t plane);
/// G g G^T of one 3x3 kernel: 16 values; 9 for doubled pictures.
void winograd_kernel(const float* g, bool doubled, float* out);

/// Where results go: pixel i (0 to 3: left to right, top to bottom; 0 and 1 for a plain row) at y + offset[i], or
/// nowhere if offset[i] < 0. bias and residual (at the same offsets) may be null.
struct Destination {
  const float *bias, *residual;
  float* y;
  int64_t offset[4];
};
/// A^T m A of the 16 or 9 products, `plane` values apart, for n channels.
void winograd_output(const float* m, int64_t plane, bool doubled, int64_t n, const Destination& to);
/// One pixel of n channels: y = m + bias + residual.
void finish_pixel(const float* m, int64_t n, const float* bias, const float* residual, float* y);

}  // namespace danqing::kernels
