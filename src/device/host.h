// What the operating system lets this process use of the machine: cores and memory. Linux; elsewhere sensible guesses.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace danqing::host {

/// Logical processors that the scheduler may put this process on.
std::vector<int> allowed_cpus();
/// Physical cores among `cpus` (SMT siblings counted once), no more than the CPU quota of the control group (v1 or v2,
/// rounded up). At least 1. `root` replaces "/" in tests.
int physical_cores(const std::vector<int>& cpus, const std::filesystem::path& root = "/");

struct Memory {
  uint64_t total = 0, available = 0;  ///< bytes; 0 when unknown
};
/// The machine's memory, or the control group's limit where that is smaller. Swap counts as available.
Memory memory(const std::filesystem::path& root = "/");

std::string cpu_name(const std::filesystem::path& root = "/");
/// Vector extensions in capitals: "AVX2 FMA F16C AVX512F AVX512_BF16"
std::string cpu_features(const std::filesystem::path& root = "/");

}  // namespace danqing::host
