#include "device/kernels/gemm.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <vector>

#include "device/kernels/rows.h"

namespace danqing::kernels {
namespace {

constexpr int64_t kStripBytes = 16 * 1024;  ///< of a strip of B along K: half of a first-level cache of 32 KiB
constexpr int64_t kMaxChunkBytes = 1024;    ///< of one row of it, for the narrowest tile
constexpr int64_t kWholeBlocks = 256;       ///< values: whole blocks of every stored type
constexpr int64_t kCols = 128;              ///< columns of a task: its part of B stays in the second-level cache
constexpr int64_t kRowsAtOnce = 192;        ///< rows that pass under one strip of B before the next strip
constexpr int64_t kGroupShared = 1152, kGroupOwn = 384;  ///< rows of A that are packed at a time
constexpr int64_t kManyGroups = 64;                      ///< from here on each task packs rows of its own
constexpr int kMaxNr = 64;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }
size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

/// Sizes that follow from the shape, the format and the processor's tile.
struct Plan {
  const MicroKernels& micro = *micro_kernels();
  int64_t unit = 4;       ///< bytes of one packed value
  int64_t chunk = 256;    ///< values along K at a time
  int64_t padded_k = 0;   ///< K rounded up to what the format needs
  bool own_rows = false;  ///< each task packs its rows of A; otherwise all tasks of a group share them
  int64_t groups = 1, group_rows = 0, strips = 0;  ///< of A; strips of one group
  int64_t b_strips = 0, task_strips = 0;

  explicit Plan(const Gemm& g) {
    unit = g.format == Format::f32 ? 4 : g.format == Format::i16 ? 2 : 1;
    chunk = std::max(std::clamp(kStripBytes / micro.nr, kMaxChunkBytes / 2, kMaxChunkBytes) / unit, kWholeBlocks);
    padded_k = round_up(std::max<int64_t>(g.k, 1), g.format == Format::f32 ? 1 : g.format == Format::i16 ? kBlockK : 4);
    own_rows = ceil_div(g.m, kGroupOwn) >= kManyGroups;
    const int64_t limit = own_rows ? kGroupOwn : kGroupShared;
    groups = ceil_div(g.m, limit);
    group_rows = round_up(ceil_div(g.m, groups), micro.mr);
    groups = ceil_div(g.m, group_rows);
    strips = group_rows / micro.mr;
    b_strips = ceil_div(g.n, micro.nr);
    task_strips = std::max<int64_t>(1, kCols / micro.nr);
  }
  int64_t scales(int64_t kn) const { return ceil_div(kn, kBlockK); }
  /// One strip of `width` rows over kn values: packed values, then the scales of i16.
  size_t strip_bytes(int64_t width, int64_t kn, Format f) const {
    return aligned(static_cast<size_t>(width * kn * unit)) +
           (f == Format::i16 ? aligned(static_cast<size_t>(width * scales(kn)) * sizeof(float)) : 0);
  }
  size_t all_chunks(int64_t width, Format f) const {
    size_t bytes = 0;
    for (int64_t k0 = 0; k0 < padded_k; k0 += chunk) bytes += strip_bytes(width, std::min(chunk, padded_k - k0), f);
    return bytes;
  }
};

struct Strip {
  std::byte* values;
  float* scales;
  int32_t* sums = nullptr;  ///< i8, of B: the sum of each column so far
};

/// Packing and multiplying for one product. Const during a run: all threads share it.
class Job {
 public:
  Job(const Gemm& g, std::byte* scratch, int threads) : g_(g), p_(g) {
    a_group_ = static_cast<size_t>(p_.strips) * p_.all_chunks(p_.micro.mr, g.format);
    b_all_ = g.keep_b ? static_cast<size_t>(p_.b_strips) * p_.all_chunks(p_.micro.nr, g.format) : 0;
    b_task_ = g.keep_b ? 0 : static_cast<size_t>(p_.task_strips) * p_.strip_bytes(p_.micro.nr, p_.chunk, g.format);
    const int64_t strips_with_sums = g.keep_b ? p_.b_strips : p_.task_strips * threads;
    c_task_ = static_cast<size_t>(p_.strips * p_.task_strips) * tile_values() * sizeof(float);
    sums_ = g.format == Format::i8 ? aligned(static_cast<size_t>(strips_with_sums * p_.micro.nr) * sizeof(int32_t)) : 0;
    a_ = scratch;
    b_ = a_ + (p_.own_rows ? static_cast<size_t>(threads) : 1) * a_group_;
    c_ = b_ + b_all_ + static_cast<size_t>(threads) * b_task_;
    column_sums_ = reinterpret_cast<int32_t*>(c_ + static_cast<size_t>(threads) * c_task_);
    total_ = (p_.own_rows ? static_cast<size_t>(threads) : 1) * a_group_ + b_all_ +
             static_cast<size_t>(threads) * (b_task_ + c_task_) + sums_;
  }
  size_t bytes() const { return total_; }

  void run(Pool& pool) const {
    if (g_.k <= 0) return zero(pool);
    if (g_.keep_b)
      pool.run(p_.b_strips, [&](int64_t s, int) {
        for_chunks([&](int64_t k0, int64_t kn) { pack_b(s, k0, kn, kept_b(s, k0, kn)); });
      });
    if (p_.own_rows) {
      pool.run(p_.groups, [&](int64_t group, int worker) {
        std::byte* a = a_ + static_cast<size_t>(worker) * a_group_;
        for (int64_t s = 0; s < p_.strips; ++s) pack_a(a, group, s);
        for (int64_t first = 0; first < p_.b_strips; first += p_.task_strips) columns(a, group, first, worker);
      });
      return;
    }
    for (int64_t group = 0; group < p_.groups; ++group) {
      pool.run(p_.strips, [&](int64_t s, int) { pack_a(a_, group, s); });
      pool.run(ceil_div(p_.b_strips, p_.task_strips),
               [&](int64_t task, int worker) { columns(a_, group, task * p_.task_strips, worker); });
    }
  }

 private:
  template <class F>
  void for_chunks(F f) const {
    for (int64_t k0 = 0; k0 < p_.padded_k; k0 += p_.chunk) f(k0, std::min(p_.chunk, p_.padded_k - k0));
  }

  void zero(Pool& pool) const {
    pool.run(g_.m, [&](int64_t m, int) {
      std::fill_n(g_.c + m * g_.ldc, g_.n, 0.0f);
      if (g_.finish) g_.finish(m, 0, g_.n, g_.c + m * g_.ldc);
    });
  }

  Strip strip_at(std::byte* base, int64_t width, int64_t kn) const {
    return {base, reinterpret_cast<float*>(base + aligned(static_cast<size_t>(width * kn * p_.unit)))};
  }
  Strip a_strip(std::byte* group, int64_t s, int64_t k0, int64_t kn) const {
    const size_t whole = static_cast<size_t>(k0 / p_.chunk) * p_.strip_bytes(p_.micro.mr, p_.chunk, g_.format);
    return strip_at(group + whole * static_cast<size_t>(p_.strips) +
                        static_cast<size_t>(s) * p_.strip_bytes(p_.micro.mr, kn, g_.format),
                    p_.micro.mr, kn);
  }
  Strip kept_b(int64_t s, int64_t k0, int64_t kn) const {
    const size_t whole = static_cast<size_t>(k0 / p_.chunk) * p_.strip_bytes(p_.micro.nr, p_.chunk, g_.format);
    Strip strip = strip_at(b_ + whole * static_cast<size_t>(p_.b_strips) +
                               static_cast<size_t>(s) * p_.strip_bytes(p_.micro.nr, kn, g_.format),
                           p_.micro.nr, kn);
    strip.sums = column_sums_ + s * p_.micro.nr;
    return strip;
  }
  /// The s-th strip of a task.
  Strip task_b(int worker, int64_t s, int64_t kn) const {
    Strip strip = strip_at(b_ + b_all_ + static_cast<size_t>(worker) * b_task_ +
                               static_cast<size_t>(s) * p_.strip_bytes(p_.micro.nr, p_.chunk, g_.format),
                           p_.micro.nr, kn);
    strip.sums = column_sums_ + (worker * p_.task_strips + s) * p_.micro.nr;
    return strip;
  }

  /// `count` rows from `first` of a source into one strip of `width`. kn counts the padding of K too.
  void pack(const RowSource& source, const Bf16Source& bf16, int64_t first, int64_t count, int width, int64_t k0,
            int64_t kn, Strip to, bool coarse, const float* row_scale, int zero, int32_t* sums) const {
    const int64_t real = std::min(kn, g_.k - k0);
    alignas(64) float buffer[4][kMaxChunkBytes];  // as many values as i8 has in a chunk
    alignas(64) int16_t quantised[4][kMaxChunkBytes / 2];
    alignas(64) float scales[kMaxNr][kMaxChunkBytes / 2 / kBlockK];
    const void* rows[4];
    for (int64_t i = 0; i < width; i += 4) {
      const auto n = static_cast<int>(std::clamp<int64_t>(count - i, 0, 4));
      for (int r = 0; r < n; ++r) {
        if (g_.format == Format::i16 && bf16) {
          quantize_bf16(bf16(first + i + r, k0, real), real, quantised[r], scales[i + r]);
          rows[r] = quantised[r];
          continue;
        }
        const float* x = source(first + i + r, k0, real, buffer[r]);
        switch (g_.format) {
          case Format::f32: rows[r] = x; break;
          case Format::i16:
            quantize_i16(x, real, coarse, quantised[r], scales[i + r]);
            rows[r] = quantised[r];
            break;
          case Format::i8: {
            auto* q = reinterpret_cast<uint8_t*>(quantised[r]);
            const int32_t sum = quantize_i8(x, real, row_scale[first + i + r], zero, q);
            std::memset(q + real, zero, static_cast<size_t>(kn - real));
            if (sums) sums[i + r] += sum;
            rows[r] = q;
            break;
          }
        }
      }
      interleave(rows, n, kn * p_.unit / 4, width, i, to.values);
      if (g_.format == Format::i16)
        for (int64_t r = n; r < 4 && i + r < width; ++r) std::fill_n(scales[i + r], scales_of(kn), 0.0f);
    }
    if (g_.format == Format::i16)
      for (int64_t b = 0; b < p_.scales(kn); ++b)
        for (int64_t i = 0; i < width; ++i) to.scales[b * width + i] = scales[i][b];
  }
  int64_t scales_of(int64_t kn) const { return p_.scales(kn); }

  void pack_a(std::byte* base, int64_t group, int64_t s) const {
    const int64_t first = group * p_.group_rows + s * p_.micro.mr;
    const int64_t count = std::clamp<int64_t>(g_.m - first, 0, p_.micro.mr);
    if (count == 0) return;
    for_chunks([&](int64_t k0, int64_t kn) {
      pack(g_.a, {}, first, count, p_.micro.mr, k0, kn, a_strip(base, s, k0, kn), false, g_.a_scale, kZeroI8, nullptr);
    });
  }

  void pack_b(int64_t s, int64_t k0, int64_t kn, Strip to) const {
    const int64_t first = s * p_.micro.nr, count = std::min<int64_t>(g_.n - first, p_.micro.nr);
    int32_t* sums = g_.format == Format::i8 ? to.sums : nullptr;
    if (sums && k0 == 0) std::fill_n(sums, p_.micro.nr, 0);
    pack(g_.b, g_.b_bf16, first, count, p_.micro.nr, k0, kn, to, g_.b_is_coarse, g_.b_scale, 0, sums);
  }

  size_t tile_values() const { return static_cast<size_t>(p_.micro.mr * p_.micro.nr); }

  /// The strips from `first` on of one task against all rows of a group. Unfinished tiles lie one behind the other in
  /// memory of the task: as rows of C, a power of two apart, they would push each other out of the cache.
  void columns(std::byte* a, int64_t group, int64_t first, int worker) const {
    const int64_t last = std::min(first + p_.task_strips, p_.b_strips);
    const int64_t m0 = group * p_.group_rows, m1 = std::min(m0 + p_.group_rows, g_.m);
    auto* unfinished = reinterpret_cast<float*>(c_ + static_cast<size_t>(worker) * c_task_);
    for_chunks([&](int64_t k0, int64_t kn) {
      if (!g_.keep_b)
        for (int64_t s = first; s < last; ++s) pack_b(s, k0, kn, task_b(worker, s - first, kn));
      for (int64_t m = m0; m < m1; m += kRowsAtOnce)
        for (int64_t s = first; s < last; ++s) {
          const Strip b = g_.keep_b ? kept_b(s, k0, kn) : task_b(worker, s - first, kn);
          for (int64_t i = m; i < std::min(m + kRowsAtOnce, m1); i += p_.micro.mr) {
            const int64_t row = (i - m0) / p_.micro.mr;
            float* c = unfinished + static_cast<size_t>(row * p_.task_strips + s - first) * tile_values();
            tile(a_strip(a, row, k0, kn), b, c, kn, k0 > 0);
            if (k0 + kn == p_.padded_k) finish(c, i, s, b.sums);
          }
        }
    });
  }

  void tile(const Strip& a, const Strip& b, float* c, int64_t kn, bool more) const {
    const int nr = p_.micro.nr;
    switch (g_.format) {
      case Format::f32:
        return p_.micro.f32(kn, reinterpret_cast<const float*>(a.values), reinterpret_cast<const float*>(b.values), c,
                            nr, more);
      case Format::i16:
        return p_.micro.i16(kn, reinterpret_cast<const int16_t*>(a.values), a.scales,
                            reinterpret_cast<const int16_t*>(b.values), b.scales, c, nr, more);
      case Format::i8:
        return p_.micro.i8(kn, reinterpret_cast<const uint8_t*>(a.values), reinterpret_cast<const int8_t*>(b.values),
                           reinterpret_cast<int32_t*>(c), nr, more);
    }
  }

  /// A tile whose sums are complete goes to its place in C.
  void finish(const float* tile, int64_t m, int64_t s, const int32_t* sums) const {
    const int64_t nr = p_.micro.nr, n = s * nr;
    const int64_t rows = std::min<int64_t>(p_.micro.mr, g_.m - m), cols = std::min(nr, g_.n - n);
    for (int64_t i = 0; i < rows; ++i, tile += nr) {
      float* row = g_.c + (m + i) * g_.ldc + n;
      if (g_.format == Format::i8)
        scale_i8(reinterpret_cast<const int32_t*>(tile), cols, g_.a_scale[m + i], g_.b_scale + n, sums, row);
      else
        std::memcpy(row, tile, static_cast<size_t>(cols) * sizeof(float));
      if (g_.finish) g_.finish(m + i, n, cols, row);
    }
  }

  const Gemm& g_;
  Plan p_;
  size_t a_group_ = 0, b_all_ = 0, b_task_ = 0, c_task_ = 0, sums_ = 0, total_ = 0;
  std::byte *a_ = nullptr, *b_ = nullptr, *c_ = nullptr;
  int32_t* column_sums_ = nullptr;
};

double seconds(const std::function<void()>& f) {
  const auto begin = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Whether integer tiles are clearly faster than f32 ones here. On processors that run as many of them in a cycle the
/// ratio is 1, on the others 2 (AMD from Zen 4 on), so that a measurement of two milliseconds tells them apart on a
/// busy machine too: both take turns, and the best of many tries counts.
bool integers_are_faster() {
  const MicroKernels& m = *micro_kernels();
  constexpr int64_t k = 4 * kBlockK;
  constexpr int kTiles = 8, kTries = 40;
  std::vector<float> memory(static_cast<size_t>(k * (m.mr + m.nr) + m.mr * m.nr) + 64, 0.0f);
  auto* b = reinterpret_cast<float*>(aligned(reinterpret_cast<size_t>(memory.data())));
  float *c = b + k * m.nr, *a = c + m.mr * m.nr;
  double plain = std::numeric_limits<double>::max(), integer = plain;
  for (int i = 0; i < kTries; ++i) {
    plain = std::min(plain, seconds([&] {
                       for (int j = 0; j < kTiles; ++j) m.f32(k, a, b, c, m.nr, false);
                     }));
    integer = std::min(integer, seconds([&] {
                         for (int j = 0; j < kTiles; ++j)
                           m.i16(k, reinterpret_cast<int16_t*>(a), a + k * m.mr / 2, reinterpret_cast<int16_t*>(b),
                                 b + k * m.nr / 2, c, m.nr, false);
                       }));
  }
  return integer * 1.4 < plain;
}

}  // namespace

bool computes(Format format) {
  const MicroKernels* m = micro_kernels();
  if (!m) return false;
  return format == Format::f32 ? m->f32 != nullptr : format == Format::i16 ? m->i16 != nullptr : m->i8 != nullptr;
}

Format preferred_format() {
  static const Format format = computes(Format::i16) && integers_are_faster() ? Format::i16 : Format::f32;
  return format;
}

size_t gemm_scratch(const Gemm& g, int threads) {
  return g.m <= 0 || g.n <= 0 || g.k <= 0 ? 0 : Job(g, nullptr, threads).bytes();
}

void multiply(Pool& pool, const Gemm& g, std::byte* scratch) {
  if (g.m > 0 && g.n > 0) Job(g, scratch, pool.threads()).run(pool);
}

}  // namespace danqing::kernels
