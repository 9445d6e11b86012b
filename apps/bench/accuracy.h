// What the faster number formats of the CPU cost in accuracy.
#pragma once
#include "bench/stages.h"
#include "danqing/cpu.h"

namespace danqing::app {

/// One pass of ERNIE-Image's denoiser in bf16, i16 and i8 (and with matrices kept as q8_0 and q4_K), each against the
/// pass with f32 products: a row says the relative L2 of the difference. Formats that the processor lacks are left out.
Result<void> bench_accuracy(const CpuOptions& cpu, const ComponentProvider& components, const BenchOptions& options,
                            const std::function<void(Measurement)>& on_row);

}  // namespace danqing::app
