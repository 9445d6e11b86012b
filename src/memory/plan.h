// Chooses the cheapest way to run a job that fits the device, before anything is allocated. Arithmetic over exact
// sizes; reads no weights and touches no device. Free of state; any thread.
#pragma once
#include "danqing/memory.h"
#include "memory/needs.h"

namespace danqing::memory {

/// What there is, in bytes.
struct Limits {
  uint64_t device_memory = 0;  ///< allowed, the reserve included
  uint64_t host_memory = 0;    ///< available
  bool is_cpu = true;          ///< weights are used where the file is mapped, no link to a card is crossed
  std::string device = "cpu";
};

/// A plan and what of it the public form leaves out.
struct Decision {
  MemoryPlan plan;
  std::array<WeightPolicy, kParts.size()> policies;  ///< by Part: in which type and how to load
  std::array<bool, kParts.size()> used{};            ///< by Part: the job runs it
  std::array<bool, kParts.size()> keep{};            ///< by Part: stays on the device after its stage
};

/// The reserve that applies: as asked, else a tenth of the memory, at most 4 GiB.
uint64_t reserve_of(const MemoryOptions& options, uint64_t device_memory);

/// Order of preference: everything resident; the same with the VAE in tiles; each component on the device only while it
/// computes, with tiles or fewer pictures at once where that helps; layers streamed, as many resident as fit; matrices
/// quantised on load. Quantising comes before streaming only where streaming would cost more time than it can hide: for
/// an enhancer's hundreds of tokens, and for files that the host cannot keep in memory. Error does_not_fit says by how
/// much and what would fit.
Result<Decision> decide(Needs needs, const Limits& limits, const MemoryOptions& options);

}  // namespace danqing::memory
