#include "server/ops/monitor.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "server/jobs/job.h"

namespace danqing::server {
namespace {

namespace fs = std::filesystem;
constexpr size_t kSamples = 1800;

double read_number(const fs::path& path) {
  std::ifstream f(path);
  double v = -1;
  return f >> v ? v : -1;
}

void read_card(Sample& s) {
  std::error_code ec;
  for (const auto& card : fs::directory_iterator("/sys/class/drm", ec)) {
    const std::string name = card.path().filename();
    if (name.rfind("card", 0) != 0 || name.find('-') != std::string::npos) continue;
    const fs::path device = card.path() / "device";
    const double busy = read_number(device / "gpu_busy_percent");
    if (busy < 0) continue;
    s.load = busy / 100;
    s.memory_used = read_number(device / "mem_info_vram_used");
    s.memory_total = read_number(device / "mem_info_vram_total");
    for (const auto& hwmon : fs::directory_iterator(device / "hwmon", ec))
      if (const double t = read_number(hwmon.path() / "temp1_input"); t >= 0) s.temperature = t / 1000;
    return;
  }
}

void read_host(Sample& s) {
  std::ifstream f("/proc/meminfo");
  std::string key;
  double value = 0;
  std::string line;
  double available = 0;
  while (std::getline(f, line)) {
    std::istringstream in(line);
    in >> key >> value;
    if (key == "MemTotal:") s.host_total = value * 1024;
    if (key == "MemAvailable:") available = value * 1024;
  }
  s.host_used = s.host_total - available;
  std::ifstream statm("/proc/self/statm");
  double size = 0, resident = 0;
  if (statm >> size >> resident) s.process = resident * static_cast<double>(sysconf(_SC_PAGESIZE));
}

}  // namespace

void Monitor::sample() {
  Sample s;
  s.time = now_seconds();
  read_card(s);
  read_host(s);
  std::ifstream stat("/proc/stat");
  std::string cpu;
  double v = 0, total = 0, idle = 0;
  stat >> cpu;
  for (int i = 0; i < 8 && stat >> v; ++i) {
    total += v;
    if (i == 3 || i == 4) idle += v;
  }
  const std::lock_guard lock(mutex_);
  if (cpu_total_ > 0 && total > cpu_total_) s.cpu_load = (total - idle - cpu_busy_) / (total - cpu_total_);
  cpu_busy_ = total - idle;
  cpu_total_ = total;
  samples_.push_back(s);
  if (samples_.size() > kSamples) samples_.pop_front();
}

Sample Monitor::last() const {
  const std::lock_guard lock(mutex_);
  return samples_.empty() ? Sample{} : samples_.back();
}

Json Monitor::series(double since) const {
  const auto known = [](double v) { return v < 0 ? Json() : Json(v); };
  Json out = Json::array();
  const std::lock_guard lock(mutex_);
  for (const Sample& s : samples_)
    if (s.time > since)
      out.push_back({{"time", s.time},
                     {"temperature", known(s.temperature)},
                     {"load", known(s.load)},
                     {"memory_used", known(s.memory_used)},
                     {"memory_total", known(s.memory_total)},
                     {"host_used", s.host_used},
                     {"host_total", s.host_total},
                     {"process", s.process},
                     {"cpu_load", known(s.cpu_load)}});
  return out;
}

}  // namespace danqing::server
