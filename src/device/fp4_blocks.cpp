#include "device/fp4_blocks.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "base/text.h"
#include "base/try.h"
#include "checkpoint/scale_table.h"
#include "device/convert.h"
#include "device/stored_values.h"

namespace danqing {
namespace {

constexpr int64_t kPieceValues = int64_t{1} << 20;  ///< per thread, at least a row

int64_t rows_at_once(const TensorInfo& t) {
  return std::clamp<int64_t>(kPieceValues / std::max<int64_t>(t.shape[1], 1), 1, t.shape[0]);
}

class Relay {
 public:
  Relay(const TensorSource& source, const TensorInfo& t, DType to)
      : values_(source.bytes(t)),
        scales_(source.bytes(t.scale->values)),
        scale_(*t.scale),
        columns_(t.shape[1]),
        nvfp4_(to == DType::nvfp4),
        high_first_(t.dtype == DType::f4_e2m1_hi) {}

  /// One row of blocks. False when a scale is no number.
  bool row(int64_t row, uint8_t* out) const {
    const int64_t group = scale_.block_columns, groups = columns_ / group;  // values with one scale
    const auto* in = reinterpret_cast<const uint8_t*>(values_.data()) + row * columns_ / 2;
    bool numbers = true;
    for (int64_t g = 0; g < groups; ++g, in += group / 2) {
      auto scale = static_cast<uint8_t>(scales_[scale_index(scale_, row, g, groups)]);
      uint8_t flip = 0;
      if (nvfp4_) {  // ggml's scale has no sign: the values take it
        flip = scale & 0x80 ? 0x88 : 0;
        scale &= 0x7f;
        numbers = numbers && scale != 0x7f;
        uint8_t* block = out + g / 4 * 36;
        block[g % 4] = scale;
        halves(in, 8, flip, block + 4 + 8 * (g % 4));
      } else {
        numbers = numbers && scale != 0xff;
        uint8_t* block = out + g * 17;
        block[0] = scale;
        halves(in, 16, flip, block + 1);
      }
    }
    return numbers;
  }

 private:
  /// Pairs of neighbours become pairs of value i and value i + n.
  void halves(const uint8_t* in, int n, uint8_t flip, uint8_t* out) const {
    uint8_t nibbles[32];
    for (int i = 0; i < n; ++i) {
      const uint8_t b = in[i], low = b & 15, high = b >> 4;
      nibbles[2 * i] = high_first_ ? high : low;
      nibbles[2 * i + 1] = high_first_ ? low : high;
    }
    for (int i = 0; i < n; ++i) out[i] = static_cast<uint8_t>((nibbles[i] | nibbles[i + n] << 4) ^ flip);
  }

  std::span<const std::byte> values_, scales_;
  const TensorScale& scale_;
  int64_t columns_;
  bool nvfp4_, high_first_;
};

}  // namespace

uint64_t fp4_blocks_bytes(const TensorInfo& stored, DType to, int threads) {
  return std::min<uint64_t>(
      stored_bytes(to, rows_at_once(stored) * stored.shape[1]) * static_cast<uint64_t>(std::max(threads, 1)),
      stored_bytes(to, element_count(stored.shape)));
}

Result<void> fp4_blocks(const TensorSource& source, const TensorInfo& stored, DType to, int threads,
                        const std::function<Result<void>(size_t offset, std::span<const std::byte> piece)>& sink) {
  const Relay relay(source, stored, to);
  const int64_t rows = stored.shape[0], part = rows_at_once(stored), at_once = part * std::max(threads, 1);
  const size_t row_bytes = stored_bytes(to, stored.shape[1]);
  std::vector<std::byte> piece(static_cast<size_t>(std::min(at_once, rows)) * row_bytes);
  for (int64_t first = 0; first < rows; first += at_once) {
    const int64_t n = std::min(at_once, rows - first);
    std::atomic<bool> numbers{true};
    parallel_for(threads, (n + part - 1) / part, [&](int64_t i) {
      for (int64_t r = i * part; r < std::min((i + 1) * part, n); ++r)
        if (!relay.row(first + r, reinterpret_cast<uint8_t*>(piece.data()) + static_cast<size_t>(r) * row_bytes))
          numbers = false;
    });
    if (!numbers)
      return bad_input("[checkpoint] {}: tensor '{}' expected finite scales, got one that is not",
                       source.path().string(), one_line(stored.name));
    DQ_CHECK(sink(static_cast<size_t>(first) * row_bytes, std::span(piece).first(static_cast<size_t>(n) * row_bytes)));
  }
  return {};
}

}  // namespace danqing
