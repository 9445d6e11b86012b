#include "device/convert.h"

#include <algorithm>
#include <atomic>
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
constexpr size_t kCopyBytes = size_t{64} << 20;     // without conversion: often enough for progress and cancelling

size_t stored_bytes(DType t, int64_t values) {
  return static_cast<size_t>(values / traits(t).block_elements) * static_cast<size_t>(traits(t).block_bytes);
}

}  // namespace

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

Result<void> convert(DType from, std::span<const std::byte> stored, DType to, int64_t count, int64_t row, int threads,
                     const PieceSink& sink) {
  if (from == to) {
    for (size_t at = 0; at < stored.size(); at += kCopyBytes)
      DQ_CHECK(sink(at, stored.subspan(at, std::min(kCopyBytes, stored.size() - at))));
    return {};
  }
  // A piece is whole blocks of both types and, when values are quantised, whole rows.
  int64_t unit = std::lcm<int64_t>(traits(from).block_elements, traits(to).block_elements);
  if (is_quantized(to)) unit = std::lcm(unit, row);
  if (unit <= 0 || count % unit != 0)
    return bad_input("[dtype] expected whole {} and {} blocks, got {} values in rows of {}", name(from), name(to),
                     count, row);
  const int64_t piece = std::max(unit, kPieceValues / unit * unit);
  const int64_t at_once = std::max(1, threads);
  std::vector<std::vector<float>> wide(static_cast<size_t>(at_once));
  std::vector<std::vector<std::byte>> narrow(static_cast<size_t>(at_once));
  for (int64_t first = 0; first < count; first += piece * at_once) {
    const int64_t pieces = std::min(at_once, (count - first + piece - 1) / piece);
    std::vector<std::optional<Error>> errors(static_cast<size_t>(pieces));
    const auto length = [&](int64_t i) { return std::min(piece, count - first - i * piece); };
    parallel_for(threads, pieces, [&](int64_t i) {
      const auto slot = static_cast<size_t>(i);
      const int64_t n = length(i);
      wide[slot].resize(static_cast<size_t>(n));
      narrow[slot].resize(stored_bytes(to, n));
      auto done =
          dequantize(from, stored.subspan(stored_bytes(from, first + i * piece), stored_bytes(from, n)), wide[slot]);
      if (done) done = quantize(to, wide[slot], is_quantized(to) ? row : n, narrow[slot]);
      if (!done) errors[slot] = done.error();
    });
    for (int64_t i = 0; i < pieces; ++i) {
      const auto slot = static_cast<size_t>(i);
      if (errors[slot]) return *errors[slot];
      DQ_CHECK(sink(stored_bytes(to, first + i * piece), narrow[slot]));
    }
  }
  return {};
}

}  // namespace danqing
