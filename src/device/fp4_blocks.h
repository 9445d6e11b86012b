// Packed 4-bit floats of safetensors with a scale for 16 or 32 values as ggml's NVFP4 and MXFP4 blocks: the same bits
// in another order. Not for other layers.
#pragma once
#include <cstddef>
#include <functional>
#include <span>

#include "base/dtype.h"
#include "checkpoint/tensor_source.h"

namespace danqing {

/// Blocks of a matrix that direct_dtype() gives as `to`, in pieces of whole rows: their offset in bytes and their
/// bytes. Error (bad_input) when a scale is not a finite number, and the sink's.
Result<void> fp4_blocks(const TensorSource& source, const TensorInfo& stored, DType to, int threads,
                        const std::function<Result<void>(size_t offset, std::span<const std::byte> piece)>& sink);
/// Host memory that it takes.
uint64_t fp4_blocks_bytes(const TensorInfo& stored, DType to, int threads);

}  // namespace danqing
