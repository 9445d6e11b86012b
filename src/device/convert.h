// Stored values of one dtype to another, in parallel, a piece at a time.
#pragma once
#include <functional>
#include <span>

#include "base/dtype.h"
#include "danqing/result.h"
#include "device/stored_values.h"

namespace danqing {

/// Calls f(0) ... f(n-1), spread over `threads` threads (the caller's is one of them). f must not throw.
void parallel_for(int threads, int64_t n, const std::function<void(int64_t)>& f);

/// Takes a piece of the result: its offset in bytes and its bytes. An Error stops the conversion.
using PieceSink = std::function<Result<void>(size_t offset, std::span<const std::byte> piece)>;

/// How far converted values are from the original ones.
struct Deviation {
  double error = 0, size = 0;  ///< sums of squares
  double largest = 0;          ///< greatest absolute difference
  double rel_l2() const;       ///< 0 for a tensor of zeros that stayed zero
};

struct ConvertOptions {
  int threads = 1;
  float divisor = 1;               ///< values are divided by this first: the scale that will stand beside them
  Deviation* deviation = nullptr;  ///< filled when given; compares in the original's units
};

/// Host memory that convert() takes for itself without a comparison; `from` may be an outline.
uint64_t conversion_bytes(const StoredValues& from, DType to, int threads);

/// Converts to dtype `to`. Holds at most a few MiB per thread besides (conversion_bytes). Error (bad_input): rows that
/// are no whole blocks, a value that is not finite where blocks are made, or a finite one that becomes infinite.
Result<void> convert(const StoredValues& from, DType to, const ConvertOptions& options, const PieceSink& sink);

/// The largest absolute value; error (bad_input) when a value is not finite.
Result<float> largest_value(const StoredValues& from, int threads);

}  // namespace danqing
