#include "device/host.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>
#include <sstream>
#include <thread>
#include <utility>

#ifdef __linux__
#include <sched.h>
#endif

namespace danqing::host {
namespace {

namespace fs = std::filesystem;

std::string first_line(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

std::optional<int64_t> to_integer(const std::string& text) {
  char* end = nullptr;
  const long long v = std::strtoll(text.c_str(), &end, 10);
  if (end == text.c_str()) return std::nullopt;
  return v;
}
std::optional<int64_t> read_integer(const fs::path& file) { return to_integer(first_line(file)); }

/// The directories of this process's control group for a v1 controller ("cpu", "memory") or for v2 (""), innermost
/// first. Inside a container the path in /proc may lie above the visible root, so the root itself is always included.
std::vector<fs::path> group_dirs(const fs::path& root, const std::string& controller) {
  const fs::path base = root / "sys/fs/cgroup" / controller;
  std::vector<fs::path> dirs;
  std::ifstream in(root / "proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    const size_t a = line.find(':'), b = line.find(':', a == std::string::npos ? a : a + 1);
    if (b == std::string::npos) continue;
    const std::string list = "," + line.substr(a + 1, b - a - 1) + ",";
    if (controller.empty() ? list != ",," : list.find("," + controller + ",") == std::string::npos) continue;
    for (fs::path p = fs::path(line.substr(b + 1)).relative_path(); !p.empty(); p = p.parent_path())
      dirs.push_back(base / p);
  }
  dirs.push_back(base);
  return dirs;
}

/// Cores' worth of time per period, rounded up; nothing where there is no quota.
std::optional<int64_t> cpu_quota(const fs::path& root) {
  std::optional<int64_t> least;
  const auto take = [&](std::optional<int64_t> quota, std::optional<int64_t> period) {
    if (!quota || !period || *quota <= 0 || *period <= 0) return;
    const int64_t cores = *quota / *period + (*quota % *period != 0);
    least = std::min(least.value_or(cores), cores);
  };
  for (const fs::path& dir : group_dirs(root, "")) {
    std::istringstream line(first_line(dir / "cpu.max"));
    std::string quota, period;
    if (line >> quota >> period) take(to_integer(quota), to_integer(period));  // "max 100000": no number, no quota
  }
  for (const fs::path& dir : group_dirs(root, "cpu"))
    take(read_integer(dir / "cpu.cfs_quota_us"), read_integer(dir / "cpu.cfs_period_us"));
  return least;
}

uint64_t meminfo(const fs::path& root, const std::string& key) {
  std::ifstream in(root / "proc/meminfo");
  for (std::string word; in >> word;)
    if (uint64_t kib = 0; word == key + ":" && in >> kib) return kib << 10;
  return 0;
}

uint64_t stat_value(const fs::path& file, const std::string& key) {
  std::ifstream in(file);
  std::string word;
  for (uint64_t v = 0; in >> word >> v;)
    if (word == key) return v;
  return 0;
}

std::string cpuinfo(const fs::path& root, std::initializer_list<std::string_view> keys) {
  std::ifstream in(root / "proc/cpuinfo");
  for (std::string line; std::getline(in, line);)
    for (std::string_view key : keys)
      if (line.compare(0, key.size(), key) == 0)
        if (const size_t colon = line.find(": "); colon != std::string::npos) return line.substr(colon + 2);
  return {};
}

}  // namespace

std::vector<int> allowed_cpus() {
  std::vector<int> cpus;
#ifdef __linux__
  for (int limit = 1024; limit <= 65536 && cpus.empty(); limit *= 4) {  // too small a set is refused by the kernel
    cpu_set_t* set = CPU_ALLOC(static_cast<size_t>(limit));
    if (!set) break;
    const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(limit));
    if (sched_getaffinity(0, bytes, set) == 0)
      for (int i = 0; i < limit; ++i)
        if (CPU_ISSET_S(static_cast<size_t>(i), bytes, set)) cpus.push_back(i);
    CPU_FREE(set);
  }
#endif
  if (cpus.empty())
    for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i)
      cpus.push_back(static_cast<int>(i));
  return cpus;
}

int physical_cores(const std::vector<int>& cpus, const fs::path& root) {
  std::set<std::pair<int64_t, int64_t>> cores;
  for (int cpu : cpus) {
    const fs::path topology = root / "sys/devices/system/cpu" / ("cpu" + std::to_string(cpu)) / "topology";
    const auto package = read_integer(topology / "physical_package_id"), core = read_integer(topology / "core_id");
    cores.emplace(package.value_or(-1), core.value_or(-1 - cpu));  // unknown topology: a core of its own
  }
  int64_t n = static_cast<int64_t>(cores.size());
  if (const auto quota = cpu_quota(root)) n = std::min(n, *quota);
  return static_cast<int>(std::max<int64_t>(1, n));
}

Memory memory(const fs::path& root) {
  Memory m{meminfo(root, "MemTotal"), meminfo(root, "MemAvailable") + meminfo(root, "SwapFree")};
  const auto bound = [&](const fs::path& dir, const char* limit_file, const char* usage_file, const char* cache_key) {
    const auto limit = read_integer(dir / limit_file), usage = read_integer(dir / usage_file);
    if (!limit || !usage || *limit <= 0 || static_cast<uint64_t>(*limit) >= m.total) return;
    const uint64_t used = static_cast<uint64_t>(std::max<int64_t>(0, *usage));
    const uint64_t cache = std::min(used, stat_value(dir / "memory.stat", cache_key));  // given back under pressure
    const uint64_t allowed = static_cast<uint64_t>(*limit);
    m.total = allowed;
    m.available = std::min(m.available, allowed - std::min(allowed, used - cache));
  };
  for (const fs::path& dir : group_dirs(root, "")) bound(dir, "memory.max", "memory.current", "inactive_file");
  for (const fs::path& dir : group_dirs(root, "memory"))
    bound(dir, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file");
  return m;
}

std::string cpu_name(const fs::path& root) {
  std::string name = cpuinfo(root, {"model name", "Model", "Hardware"});
  return name.empty() ? "CPU" : name;
}

std::string cpu_features(const fs::path& root) {
  std::istringstream flags(cpuinfo(root, {"flags", "Features"}));
  const std::set<std::string> have(std::istream_iterator<std::string>{flags}, std::istream_iterator<std::string>{});
  std::string text;
  for (const char* flag :
       {"sse4_2",   "avx",         "avx2",        "fma",         "f16c",     "avx_vnni", "avx512f",  "avx512bw",
        "avx512vl", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16", "asimd",
        "asimddp",  "asimdhp",     "i8mm",        "bf16",        "sve",      "sve2"}) {
    if (!have.count(flag)) continue;
    if (!text.empty()) text += ' ';
    for (const char* c = flag; *c; ++c) text += static_cast<char>(std::toupper(static_cast<unsigned char>(*c)));
  }
  return text;
}

}  // namespace danqing::host
