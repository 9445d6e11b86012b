#include "device/kernels/conv_winograd.h"

#include <algorithm>
#include <cstring>
#include <optional>

namespace danqing::kernels {
namespace {

constexpr int64_t kChunk =
    256;  ///< channels multiplied at a time: a strip of the kernel then fits the first-level cache
constexpr int64_t kTaskRows = 192;  ///< tiles (or pixels) of a task where there are enough of them
constexpr int64_t kLeastRows = 48;
constexpr int64_t kTasksPerThread = 8;  ///< in a band
constexpr size_t kTaskBytes = size_t{16} << 20, kBandBytes = size_t{64} << 20;
constexpr int64_t kSkew = 16;  ///< keeps rows and planes off the same cache sets

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }
size_t bytes_of(int64_t floats) { return (static_cast<size_t>(floats) * sizeof(float) + 63) / 64 * 64; }

class Convolution {
 public:
  Convolution(const ConvShape& s, int threads) : s_(s) {
    positions_ = s.pointwise ? 1 : s.doubled ? 9 : 16;
    step_ = s.doubled ? 1 : 2;
    tiles_h_ = s.pointwise ? 1 : ceil_div(s.out_h + s.cut_top, 2);
    tiles_w_ = s.pointwise ? s.h * s.w : ceil_div(s.out_w + s.cut_left, 2);
    pixel_ = padded_channels(s.c);
    lda_ = pixel_ + kSkew;
    strips_ = ceil_div(s.o, tile_.cols);
    ldm_ = strips_ * tile_.cols;
    for (rows_ = kTaskRows; rows_ > kLeastRows; rows_ /= 2)
      if (task_bytes() <= kTaskBytes && tiles_h_ * tiles_w_ >= rows_ * threads * 4) break;
    row_floats_ = (step_ * tiles_w_ + 2) * pixel_;
    band_ = std::clamp<int64_t>(ceil_div(kTasksPerThread * threads * rows_, tiles_w_), 1, tiles_h_);
    while (band_ > 1 && band_bytes() > kBandBytes) band_ /= 2;
    band_ = ceil_div(tiles_h_, ceil_div(tiles_h_, band_));  // all about equally high
  }

  size_t kernel_bytes() const { return bytes_of(positions_ * s_.c * ldm_); }
  size_t band_bytes() const { return s_.pointwise ? 0 : bytes_of(ring() * row_floats_); }
  size_t task_bytes() const { return bytes_of(positions_ * plane_a()) + bytes_of(positions_ * plane_m()); }
  size_t bytes(int threads) const {
    return kernel_bytes() + band_bytes() + static_cast<size_t>(threads) * task_bytes();
  }

  void run(Pool& pool, const ConvData& d, std::byte* scratch) {
    kernel_ = reinterpret_cast<float*>(scratch);
    band_data_ = reinterpret_cast<float*>(scratch + kernel_bytes());
    tasks_ = scratch + kernel_bytes() + band_bytes();
    d_ = &d;
    const int64_t blocks = ceil_div(s_.c, kChannelBlock);
    pool.run(strips_ * blocks, [&](int64_t task, int) { pack_kernel(task / blocks, task % blocks * kChannelBlock); });
    for (int64_t b = 0; b < s_.batch; ++b) s_.pointwise ? points(pool, b) : picture(pool, b);
  }

 private:
  int64_t ring() const { return step_ * band_ + 2; }
  int64_t plane_a() const { return rows_ * lda_ + kSkew; }
  int64_t plane_m() const { return rows_ * ldm_ + kSkew; }
  float* task_a(int worker) const {
    return reinterpret_cast<float*>(tasks_ + static_cast<size_t>(worker) * task_bytes());
  }
  float* task_m(int worker) const { return task_a(worker) + bytes_of(positions_ * plane_a()) / sizeof(float); }
  float* ring_row(int64_t q) const { return band_data_ + q % ring() * row_floats_; }

  std::optional<ChannelNorm> norm(int64_t b) const {
    if (!d_->norm) return std::nullopt;
    const float* n = d_->norm + b * 3 * s_.c;
    return ChannelNorm{n, n + s_.c, n + 2 * s_.c, d_->silu};
  }

  /// Channels from c0 on of one strip of the kernel: [position][strip][c][columns].
  void pack_kernel(int64_t strip, int64_t c0) const {
    const int64_t c1 = std::min(c0 + kChannelBlock, s_.c), size = s_.pointwise ? 1 : 9;
    float values[16] = {};
    for (int64_t lane = 0; lane < tile_.cols; ++lane) {
      const int64_t o = strip * tile_.cols + lane;
      if (o >= s_.o) std::fill_n(values, 16, 0.0f);
      for (int64_t c = c0; c < c1; ++c) {
        if (o < s_.o) {
          const float* g = d_->kernel + (o * s_.c + c) * size;
          if (s_.pointwise)
            values[0] = *g;
          else
            winograd_kernel(g, s_.doubled, values);
        }
        float* to = kernel_ + (strip * s_.c + c) * tile_.cols + lane;
        for (int64_t p = 0; p < positions_; ++p) to[p * strips_ * s_.c * tile_.cols] = values[p];
      }
    }
  }

  /// All positions of `count` prepared rows.
  void multiply(int64_t count, const float* a, float* m) const {
    const int64_t rows = round_up(count, tile_.rows);
    for (int64_t p = 0; p < positions_; ++p)
      for (int64_t k0 = 0; k0 < s_.c; k0 += kChunk)
        for (int64_t strip = 0; strip < strips_; ++strip)
          product(rows, std::min(kChunk, s_.c - k0), a + p * plane_a() + k0, lda_,
                  kernel_ + ((p * strips_ + strip) * s_.c + k0) * tile_.cols, m + p * plane_m() + strip * tile_.cols,
                  ldm_, k0 > 0);
  }

  /// The last tile of rows is computed whole.
  void clear_rest(int64_t count, float* a) const {
    for (int64_t p = 0; p < positions_; ++p)
      for (int64_t t = count; t < round_up(count, tile_.rows); ++t)
        std::fill_n(a + p * plane_a() + t * lda_, s_.c, 0.0f);
  }

  void points(Pool& pool, int64_t b) const {
    const int64_t pixels = s_.h * s_.w;
    const auto n = norm(b);
    pool.run(ceil_div(pixels, rows_), [&](int64_t task, int worker) {
      const int64_t first = task * rows_, count = std::min(rows_, pixels - first), at = b * pixels + first;
      float *a = task_a(worker), *m = task_m(worker);
      prepare_pixels(d_->x + at * s_.c, count, s_.c, n ? &*n : nullptr, a, lda_);
      clear_rest(count, a);
      multiply(count, a, m);
      for (int64_t i = 0; i < count; ++i) {
        const int64_t to = (at + i) * s_.o;
        finish_pixel(m + i * ldm_, s_.o, d_->bias, d_->residual ? d_->residual + to : nullptr, d_->y + to);
      }
    });
  }

  void picture(Pool& pool, int64_t b) const {
    const auto n = norm(b);
    for (int64_t first = 0; first < tiles_h_; first += band_) {
      const int64_t last = std::min(first + band_, tiles_h_);
      const int64_t q0 = first == 0 ? 0 : step_ * first + 2, q1 = step_ * last + 2;  // rows that are not there yet
      pool.run(q1 - q0, [&](int64_t i, int) { prepare_row(b, q0 + i, n ? &*n : nullptr); });
      const int64_t tiles = (last - first) * tiles_w_, tasks = ceil_div(tiles, rows_);
      const int64_t each = std::min(rows_, round_up(ceil_div(tiles, tasks), tile_.rows));
      pool.run(ceil_div(tiles, each), [&](int64_t task, int worker) {
        block(b, first, task * each, std::min(tiles, (task + 1) * each), worker);
      });
    }
  }

  /// Row q of the padded picture.
  void prepare_row(int64_t b, int64_t q, const ChannelNorm* n) const {
    float* row = ring_row(q);
    const int64_t y = q - s_.pad_top, pixels = row_floats_ / pixel_;
    const int64_t lead = std::min(s_.pad_left, pixels);
    const int64_t count = y < 0 || y >= s_.h ? 0 : std::clamp<int64_t>(pixels - lead, 0, s_.w);
    std::fill_n(row, lead * pixel_, 0.0f);
    if (count) prepare_pixels(d_->x + (b * s_.h + y) * s_.w * s_.c, count, s_.c, n, row + lead * pixel_, pixel_);
    std::fill_n(row + (lead + count) * pixel_, (pixels - lead - count) * pixel_, 0.0f);
  }

  /// Tiles t0 to t1 - 1 of the band that begins with row `first` of tiles.
  void block(int64_t b, int64_t first, int64_t t0, int64_t t1, int worker) const {
    float *a = task_a(worker), *m = task_m(worker);
    for (int64_t t = t0; t < t1; ++t) {
      const int64_t i = step_ * (first + t / tiles_w_), j = step_ * (t % tiles_w_) * pixel_;
      const float* rows[4] = {ring_row(i) + j, ring_row(i + 1) + j, ring_row(i + 2) + j, nullptr};
      if (s_.doubled) {
        winograd_input_doubled(rows, pixel_, a + (t - t0) * lda_, plane_a());
      } else {
        rows[3] = ring_row(i + 3) + j;
        winograd_input(rows, pixel_, a + (t - t0) * lda_, plane_a());
      }
    }
    clear_rest(t1 - t0, a);
    multiply(t1 - t0, a, m);
    Destination to{d_->bias, d_->residual, d_->y, {}};
    for (int64_t t = t0; t < t1; ++t) {
      const int64_t y = 2 * (first + t / tiles_w_), x = 2 * (t % tiles_w_);
      for (int64_t i = 0; i < 4; ++i) {
        const int64_t py = y + i / 2 - s_.cut_top, px = x + i % 2 - s_.cut_left;
        const bool there = py >= 0 && px >= 0 && py < s_.out_h && px < s_.out_w;
        to.offset[i] = there ? ((b * s_.out_h + py) * s_.out_w + px) * s_.o : -1;
      }
      winograd_output(m + (t - t0) * ldm_, plane_m(), s_.doubled, s_.o, to);
    }
  }

  ConvShape s_;
  ProductTile tile_ = product_tile();
  int64_t positions_ = 0, step_ = 0, tiles_h_ = 0, tiles_w_ = 0;
  int64_t pixel_ = 0, lda_ = 0, strips_ = 0, ldm_ = 0;  ///< values of a prepared pixel, of a row of A, of M
  int64_t rows_ = 0;                                    ///< of a task
  int64_t band_ = 1, row_floats_ = 0;                   ///< rows of tiles in a band; values of a prepared row
  const ConvData* d_ = nullptr;
  float *kernel_ = nullptr, *band_data_ = nullptr;
  std::byte* tasks_ = nullptr;
};

}  // namespace

size_t conv_scratch(const ConvShape& s, int threads) { return Convolution(s, threads).bytes(threads); }

void convolve(Pool& pool, const ConvShape& s, const ConvData& d, std::byte* scratch) {
  Convolution(s, pool.threads()).run(pool, d, scratch);
}

}  // namespace danqing::kernels
