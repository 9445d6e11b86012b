// Stored bytes of one dtype to another, in parallel, a piece at a time.
#pragma once
#include <functional>
#include <span>

#include "base/dtype.h"
#include "danqing/result.h"

namespace danqing {

/// Calls f(0) ... f(n-1), spread over `threads` threads (the caller's is one of them). f must not throw.
void parallel_for(int threads, int64_t n, const std::function<void(int64_t)>& f);

/// Takes a piece of the result: its offset in bytes and its bytes. An Error stops the conversion.
using PieceSink = std::function<Result<void>(size_t offset, std::span<const std::byte> piece)>;

/// Converts `count` values in rows of `row` from `stored` to dtype `to`. Holds at most a few MiB per thread besides.
Result<void> convert(DType from, std::span<const std::byte> stored, DType to, int64_t count, int64_t row, int threads,
                     const PieceSink& sink);

}  // namespace danqing
