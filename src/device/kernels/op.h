// Our CPU operations in a ggml graph. An operation is a function that fills its result; it runs once on the graph's
// thread and spreads its work over the Device's Pool itself (ggml's own threads stay out: they spin while they wait).
#pragma once
#include <ggml.h>

#include <array>
#include <cstddef>
#include <functional>
#include <vector>

#include "device/graph.h"
#include "device/kernels/pool.h"

namespace danqing::kernels {

/// What an operation gets when it runs: its result (out->src are its inputs, in the order given), the threads, and as
/// much scratch memory as it asked for, aligned to 64 bytes. Its contents do not survive the operation.
struct OpRun {
  ggml_tensor* out;
  Pool& pool;
  std::byte* scratch;
};
using OpFunction = std::function<void(const OpRun&)>;

/// Appends an operation with an f32 result of sizes `ne` (ggml's order). Inputs: 1 to 9, none null. `scratch` bytes are
/// part of what Runner::measure reports.
ggml_tensor* op(Graph& g, const char* name, const std::array<int64_t, 4>& ne, const std::vector<ggml_tensor*>& inputs,
                size_t scratch, OpFunction f);

/// Splits `n` items into tasks of about `grain` items: f(first, last, worker). The split does not depend on the
/// threads.
void for_ranges(Pool& pool, int64_t n, int64_t grain,
                const std::function<void(int64_t first, int64_t last, int worker)>& f);

}  // namespace danqing::kernels
