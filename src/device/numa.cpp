#include "device/numa.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <string>

#include "base/try.h"

#ifdef __linux__
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace danqing::host {
namespace {

namespace fs = std::filesystem;
constexpr int kMaxCpu = 65535;

/// "0-3,8" -> 0 1 2 3 8. What is not a list of numbers is skipped.
std::vector<int> parse_cpu_list(const std::string& text) {
  std::vector<int> cpus;
  for (size_t i = 0; i < text.size();) {
    size_t end = std::min(text.find(',', i), text.size());
    const std::string part = text.substr(i, end - i);
    char* rest = nullptr;
    const long first = std::strtol(part.c_str(), &rest, 10);
    const long last = *rest == '-' ? std::strtol(rest + 1, nullptr, 10) : first;
    if (rest != part.c_str() && first >= 0)
      for (long cpu = first; cpu <= std::min<long>(last, kMaxCpu); ++cpu) cpus.push_back(static_cast<int>(cpu));
    i = end + 1;
  }
  return cpus;
}

}  // namespace

std::vector<std::vector<int>> numa_nodes(const std::vector<int>& cpus, const fs::path& root) {
  std::map<int, std::vector<int>> nodes;
  std::error_code ec;
  for (const fs::directory_entry& entry : fs::directory_iterator(root / "sys/devices/system/node", ec)) {
    const std::string name = entry.path().filename().string();
    if (name.rfind("node", 0) != 0 || name.size() < 5 || name.find_first_not_of("0123456789", 4) != std::string::npos)
      continue;
    std::ifstream in(entry.path() / "cpulist");
    std::string line;
    std::getline(in, line);
    for (int cpu : parse_cpu_list(line))
      if (std::find(cpus.begin(), cpus.end(), cpu) != cpus.end()) nodes[std::atoi(name.c_str() + 4)].push_back(cpu);
  }
  std::vector<std::vector<int>> result;
  for (auto& [id, list] : nodes) result.push_back(std::move(list));
  if (result.empty()) result.push_back(cpus);
  return result;
}

std::vector<std::vector<int>> numa_placement(Numa mode, const std::vector<std::vector<int>>& nodes, int here) {
  if (mode == Numa::distribute) return nodes;
  if (mode == Numa::off) return {};
  for (const std::vector<int>& node : nodes)
    if (std::find(node.begin(), node.end(), here) != node.end()) return {node};
  return {nodes.front()};
}

Result<void> apply_numa(Numa mode, const std::vector<std::vector<int>>& nodes) {
#ifdef __linux__
  if (mode == Numa::off || nodes.size() < 2) return {};
  constexpr int kDefault = 0, kInterleave = 3, kLocal = 4;  // of set_mempolicy(2)
  const auto refused = [](const char* what) {
    return fail(ErrorCode::failed, "[numa] expected to set {}, got: {}; leave --numa off", what, std::strerror(errno));
  };
  if (mode == Numa::isolate) {
    const std::vector<std::vector<int>> place = numa_placement(mode, nodes, sched_getcpu());
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int cpu : place.front())
      if (cpu < CPU_SETSIZE) CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0) return refused("the processors of one memory node");
    if (syscall(SYS_set_mempolicy, kLocal, nullptr, 0) != 0 && syscall(SYS_set_mempolicy, kDefault, nullptr, 0) != 0)
      return refused("memory of the own node");
    return {};
  }
  unsigned long mask[16] = {};
  std::fill(std::begin(mask), std::end(mask), ~0ul);  // the kernel leaves out nodes that the process may not use
  if (syscall(SYS_set_mempolicy, kInterleave, mask, sizeof mask * 8) != 0) return refused("interleaved memory");
#else
  (void)mode, (void)nodes;
#endif
  return {};
}

}  // namespace danqing::host
