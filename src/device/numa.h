// Threads and memory on machines with several memory nodes. Linux; elsewhere there is one node.
#pragma once
#include <filesystem>
#include <vector>

#include "danqing/cpu.h"
#include "danqing/result.h"

namespace danqing::host {

/// The processors of each memory node that are among `cpus`; nodes without any are left out. One node with all of them
/// where the system does not tell. `root` replaces "/" in tests.
std::vector<std::vector<int>> numa_nodes(const std::vector<int>& cpus, const std::filesystem::path& root = "/");

/// On which processors the threads go: element i for thread i modulo size; empty: anywhere. `here` is the processor the
/// process runs on.
std::vector<std::vector<int>> numa_placement(Numa mode, const std::vector<std::vector<int>>& nodes, int here);

/// Restricts the calling thread to its processors of the placement (isolate), and sets where its new memory comes from.
/// Threads that it starts inherit both. Error failed when the system refuses.
Result<void> apply_numa(Numa mode, const std::vector<std::vector<int>>& nodes);

}  // namespace danqing::host
