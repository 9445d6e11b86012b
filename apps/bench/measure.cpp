#include "bench/measure.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <fstream>

#include "base/try.h"
#include "base/units.h"

namespace danqing::app {

Result<Measurement> measure(std::string stage, std::string what, int repetitions, bool warm_up,
                            const std::function<Result<void>()>& run) {
  Measurement m;
  m.stage = std::move(stage);
  m.what = std::move(what);
  m.repetitions = repetitions;
  if (warm_up) DQ_CHECK(run());
  std::vector<double> seconds;
  for (int i = 0; i < repetitions; ++i) {
    const auto start = std::chrono::steady_clock::now();
    DQ_CHECK(run());
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::sort(seconds.begin(), seconds.end());
  m.seconds = seconds[seconds.size() / 2];
  m.min_seconds = seconds[0];
  m.peak_rss = peak_rss_bytes();
  return m;
}

uint64_t peak_rss_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

std::string processor_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.compare(0, 10, "model name") == 0)
      if (const size_t colon = line.find(": "); colon != std::string::npos) return line.substr(colon + 2);
  return "unknown processor";
}

Json to_json(const Measurement& m) {
  Json j{{"stage", m.stage},
         {"what", m.what},
         {"seconds", m.seconds},
         {"min_seconds", m.min_seconds},
         {"repetitions", m.repetitions},
         {"peak_rss_bytes", m.peak_rss}};
  if (m.flops > 0) j["gflop_per_second"] = m.flops / m.seconds * 1e-9, j["gflop"] = m.flops * 1e-9;
  if (m.tokens_per_second > 0) j["tokens_per_second"] = m.tokens_per_second;
  if (m.bytes_per_second > 0) j["bytes_per_second"] = m.bytes_per_second;
  if (m.relative_l2 > 0) j["relative_l2"] = m.relative_l2;
  if (m.weight_bytes) j["weight_bytes"] = m.weight_bytes;
  if (m.compute_bytes) j["compute_bytes"] = m.compute_bytes;
  return j;
}

std::string table_head() {
  return fmt::format("{:<10} {:<58} {:>10} {:>10} {:>9} {:>9} {:>11} {:>11} {:>11}\n", "stage", "what", "seconds",
                     "best", "GFLOP/s", "tokens/s", "weights", "compute", "peak RSS");
}

std::string table_row(const Measurement& m) {
  const auto bytes = [](uint64_t b) { return b ? format_bytes(b) : std::string("-"); };
  return fmt::format("{:<10} {:<58} {:>10.4f} {:>10.4f} {:>9} {:>9} {:>11} {:>11} {:>11}\n", m.stage, m.what, m.seconds,
                     m.min_seconds, m.flops > 0 ? fmt::format("{:.1f}", m.flops / m.seconds * 1e-9) : "-",
                     m.tokens_per_second > 0 ? fmt::format("{:.1f}", m.tokens_per_second) : "-", bytes(m.weight_bytes),
                     bytes(m.compute_bytes), bytes(m.peak_rss));
}

}  // namespace danqing::app
