#include "device/convert.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "base/try.h"
#include "device/dequantize.h"

namespace danqing {
namespace {

constexpr int64_t kPieceValues = int64_t{1} << 20;  // per thread: 4 MiB as f32
constexpr size_t kCopyBytes = size_t{16} << 20;     // without conversion: often enough for progress and cancelling

/// A tensor cut into pieces of whole units; as many are worked on at once as there are threads.
class Pieces {
 public:
  Pieces(int64_t count, int64_t unit, int threads)
      : count_(count),
        piece_(std::max(unit, kPieceValues / unit * unit)),
        at_once_(std::clamp<int64_t>((count + piece_ - 1) / piece_, 1, std::max(1, threads))) {}

  int64_t slots() const { return at_once_; }
  size_t most() const { return static_cast<size_t>(std::min(piece_, count_)); }  ///< values in a piece
  /// work(slot, first value, values) on all threads, then done(slot, first value) one after the other.
  Result<void> run(const std::function<Result<void>(size_t, int64_t, int64_t)>& work,
                   const std::function<Result<void>(size_t, int64_t)>& done) const {
    for (int64_t first = 0; first < count_; first += piece_ * at_once_) {
      const int64_t pieces = std::min(at_once_, (count_ - first + piece_ - 1) / piece_);
      std::vector<std::optional<Error>> errors(static_cast<size_t>(pieces));
      parallel_for(static_cast<int>(at_once_), pieces, [&](int64_t i) {
        const int64_t at = first + i * piece_;
        const auto r = work(static_cast<size_t>(i), at, std::min(piece_, count_ - at));
        if (!r) errors[static_cast<size_t>(i)] = r.error();
      });
      for (int64_t i = 0; i < pieces; ++i) {
        if (errors[static_cast<size_t>(i)]) return *errors[static_cast<size_t>(i)];
        DQ_CHECK(done(static_cast<size_t>(i), first + i * piece_));
      }
    }
    return {};
  }

 private:
  int64_t count_, piece_, at_once_;
};

/// Values in the smallest piece: whole blocks of both types and, when values are quantised, whole rows.
int64_t common_unit(const StoredValues& from, DType to) {
  const int64_t unit = std::lcm<int64_t>(from.unit(), traits(to).block_elements);
  return is_quantized(to) ? std::lcm(unit, from.row()) : unit;
}

Result<void> check_finite(std::span<const float> values) {
  for (float v : values)
    if (!std::isfinite(v)) return bad_input("[dtype] expected finite values, got {}", v);
  return {};
}

Result<void> check_f16(std::span<const float> values) {
  for (float v : values)
    if (std::isfinite(v) && std::fabs(v) >= 65520.0f)  // rounds to infinity
      return bad_input("[dtype] expected values that f16 can hold, got {}", v);
  return {};
}

/// Compares what was stored with what was asked for.
Deviation compare(std::span<const float> values, std::span<const float> back, float factor) {
  Deviation d;
  for (size_t i = 0; i < values.size(); ++i) {
    const double wanted = static_cast<double>(values[i]) * factor;
    const double error = static_cast<double>(back[i]) * factor - wanted;
    d.error += error * error;
    d.size += wanted * wanted;
    d.largest = std::max(d.largest, std::fabs(error));
  }
  return d;
}

/// Bytes that need no conversion, in the order of the weights.
Result<void> copy(const StoredValues& from, const PieceSink& sink) {
  if (const auto bytes = from.as_stored(); !bytes.empty() || from.count() == 0) {
    for (size_t at = 0; at < bytes.size(); at += kCopyBytes)
      DQ_CHECK(sink(at, bytes.subspan(at, std::min(kCopyBytes, bytes.size() - at))));
    return {};
  }
  std::vector<std::byte> piece;
  return Pieces(from.count(), from.unit(), 1)
      .run(
          [&](size_t, int64_t first, int64_t n) -> Result<void> {
            piece.resize(stored_bytes(from.dtype(), n));
            from.raw(first, piece);
            return {};
          },
          [&](size_t, int64_t first) { return sink(stored_bytes(from.dtype(), first), piece); });
}

}  // namespace

double Deviation::rel_l2() const {
  if (error == 0) return 0;
  return size > 0 ? std::sqrt(error / size) : INFINITY;
}

void parallel_for(int threads, int64_t n, const std::function<void(int64_t)>& f) {
  std::atomic<int64_t> next{0};
  const auto work = [&] {
    for (int64_t i = next++; i < n; i = next++) f(i);
  };
  std::vector<std::thread> others;
  try {
    for (int64_t t = 1; t < std::min<int64_t>(threads, n); ++t) others.emplace_back(work);
  } catch (const std::system_error&) {  // no more threads to be had: fewer do it all
  }
  work();
  for (std::thread& t : others) t.join();
}

uint64_t conversion_bytes(const StoredValues& from, DType to, int threads) {
  if (from.dtype() == to && !from.scaled()) {
    if (!from.reordered()) return 0;
    return stored_bytes(to, static_cast<int64_t>(Pieces(from.count(), from.unit(), 1).most()));
  }
  const int64_t unit = common_unit(from, to);
  if (unit <= 0) return 0;
  const Pieces pieces(from.count(), unit, threads);
  const uint64_t slot = pieces.most() * sizeof(float) + stored_bytes(to, static_cast<int64_t>(pieces.most()));
  return static_cast<uint64_t>(pieces.slots()) * slot + from.scale_bytes();
}

Result<void> convert(const StoredValues& from, DType to, const ConvertOptions& o, const PieceSink& sink) {
  if (from.dtype() == to && !from.scaled() && o.divisor == 1) return copy(from, sink);
  const int64_t unit = common_unit(from, to);
  if (unit <= 0 || from.count() % unit != 0)
    return bad_input("[dtype] expected whole {} and {} blocks, got {} values in rows of {}", name(from.dtype()),
                     name(to), from.count(), from.row());
  struct Slot {
    std::vector<float> wide, back;
    std::vector<std::byte> narrow;
    Deviation deviation;
  };
  const Pieces pieces(from.count(), unit, o.threads);
  std::vector<Slot> slots(static_cast<size_t>(pieces.slots()));
  for (Slot& s : slots) {  // here, not on the threads: they must not throw
    s.wide.reserve(pieces.most());
    s.narrow.reserve(stored_bytes(to, static_cast<int64_t>(pieces.most())));
    if (o.deviation) s.back.reserve(pieces.most());
  }
  const auto work = [&](size_t slot, int64_t first, int64_t n) -> Result<void> {
    Slot& s = slots[slot];
    s.wide.resize(static_cast<size_t>(n));
    s.narrow.resize(stored_bytes(to, n));
    DQ_CHECK(from.read(first, s.wide));
    if (o.divisor != 1)
      for (float& v : s.wide) v /= o.divisor;
    if (is_quantized(to)) DQ_CHECK(check_finite(s.wide));
    if (to == DType::f16) DQ_CHECK(check_f16(s.wide));
    DQ_CHECK(quantize(to, s.wide, is_quantized(to) ? from.row() : n, s.narrow));
    if (!o.deviation) return {};
    s.back.resize(s.wide.size());
    DQ_CHECK(dequantize(to, s.narrow, s.back));
    s.deviation = compare(s.wide, s.back, o.divisor);
    return {};
  };
  return pieces.run(work, [&](size_t slot, int64_t first) {
    if (o.deviation) {
      const Deviation& d = slots[slot].deviation;
      o.deviation->error += d.error;
      o.deviation->size += d.size;
      o.deviation->largest = std::max(o.deviation->largest, d.largest);
    }
    return sink(stored_bytes(to, first), slots[slot].narrow);
  });
}

Result<float> largest_value(const StoredValues& from, int threads) {
  const Pieces pieces(from.count(), from.unit(), threads);
  std::vector<std::vector<float>> wide(static_cast<size_t>(pieces.slots()));
  for (std::vector<float>& w : wide) w.reserve(pieces.most());
  std::vector<float> largest(wide.size());
  float out = 0;
  const auto work = [&](size_t slot, int64_t first, int64_t n) -> Result<void> {
    wide[slot].resize(static_cast<size_t>(n));
    DQ_CHECK(from.read(first, wide[slot]));
    DQ_CHECK(check_finite(wide[slot]));
    largest[slot] = 0;
    for (float v : wide[slot]) largest[slot] = std::max(largest[slot], std::fabs(v));
    return {};
  };
  const auto merge = [&](size_t slot, int64_t) -> Result<void> {
    out = std::max(out, largest[slot]);
    return {};
  };
  DQ_CHECK(pieces.run(work, merge));
  return out;
}

}  // namespace danqing
