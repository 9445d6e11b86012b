// How the CPU computes, where it is the device.
#pragma once

namespace danqing {

/// Which code multiplies: ours, or plain ggml's (the reference in tests, the baseline in benchmarks).
enum class CpuKernels { danqing, ggml };

/// In which numbers weights of less than 24 bits are multiplied (f32 weights always in f32). Norms and convolutions are
/// f32 in all of them, attention too but in i16 and i8, where its products go in 12 bits.
enum class CpuPrecision {
  automatic,  ///< bf16 where the processor has matrix units for it (AMX); else i16 or f32, whichever it is faster at
              ///< (measured once). None loses anything against bf16
  f32,        ///< weights widened, exact products
  bf16,       ///< activations rounded to bf16 before products with bf16 weights, as torch does; other weights: f32
  i16,        ///< 12-bit integers with one scale for 128 values: finer than bf16
  i8,         ///< W8A8, 8-bit integers with one scale for a row: fastest, coarser than bf16
};

/// Machines with several memory nodes (sockets).
enum class Numa {
  off,         ///< the system decides
  isolate,     ///< threads and memory of one node, the one that the process runs on
  distribute,  ///< threads on all nodes in turn, memory interleaved
};

struct CpuOptions {
  int threads = 0;  ///< 0 = $DANQING_THREADS, else the physical cores that the process may use (affinity, quota)
  CpuKernels kernels = CpuKernels::danqing;  ///< ggml where the processor has no tiles for ours (no AVX2)
  CpuPrecision precision = CpuPrecision::automatic;
  Numa numa = Numa::off;
};

}  // namespace danqing
