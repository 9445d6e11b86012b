#include "device/host.h"

#include <unistd.h>

#include <sstream>

#include "base/text.h"
#include "monitor/reading.h"
#include "monitor/sysfs.h"

namespace danqing::monitor {
namespace {

namespace fs = std::filesystem;

/// "MemTotal:  16 kB", also with "Node 0 " in front; in bytes.
std::optional<uint64_t> kib_field(const std::string& text, const std::string& key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t at = line.find(key + ":");
    if (at == std::string::npos || (at > 0 && line[at - 1] != ' ')) continue;
    std::istringstream in(line.substr(at + key.size() + 1));
    uint64_t kib = 0;
    if (in >> kib && kib < (uint64_t{1} << 50)) return kib << 10;
  }
  return {};
}

std::vector<NumaNode> read_nodes(const fs::path& root) {
  std::vector<NumaNode> nodes;
  const fs::path dir = root / "sys/devices/system/node";
  for (const std::string& name : numbered(dir, "node")) {
    NumaNode n;
    n.id = std::atoi(name.c_str() + 4);
    n.cpus = one_line(read_line(dir / name / "cpulist").value_or(""), 200);
    const std::string text = read_bytes(dir / name / "meminfo").value_or("");
    n.memory_total = kib_field(text, "MemTotal").value_or(0);
    n.memory_free = kib_field(text, "MemFree").value_or(0);
    nodes.push_back(std::move(n));
  }
  return nodes;
}

}  // namespace

HostReading read_host(const Options& o) {
  HostReading h;
  const fs::path proc = o.root / "proc";
  const std::string meminfo = read_bytes(proc / "meminfo").value_or("");
  h.memory_total = kib_field(meminfo, "MemTotal");
  h.memory_available = kib_field(meminfo, "MemAvailable");
  h.swap_total = kib_field(meminfo, "SwapTotal");
  h.swap_free = kib_field(meminfo, "SwapFree");
  if (const host::Memory m = host::memory(o.root); h.memory_total && m.total > 0 && m.total < *h.memory_total)
    h.memory_limit = m.total;
  std::istringstream load(read_line(proc / "loadavg").value_or(""));
  double a = 0, b = 0, c = 0;
  if (load >> a >> b >> c) h.load1 = a, h.load5 = b, h.load15 = c;
  std::istringstream statm(read_line(proc / "self/statm").value_or(""));
  uint64_t size = 0, resident = 0;
  if (statm >> size >> resident && resident < (uint64_t{1} << 40))
    h.process_resident = resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  std::istringstream stat(read_line(proc / "stat").value_or(""));
  std::string word;
  stat >> word;
  double v = 0;
  for (int i = 0; word == "cpu" && i < 8 && stat >> v; ++i) {
    h.cpu_all_ticks += v;
    if (i != 3 && i != 4) h.cpu_busy_ticks += v;  // idle, waiting for a disk
  }
  h.nodes = read_nodes(o.root);
  return h;
}

}  // namespace danqing::monitor
