// The card and the process over time: what the page's monitor draws. Reads amdgpu's sysfs files and /proc.
#pragma once
#include <deque>
#include <mutex>

#include "base/json.h"

namespace danqing::server {

struct Sample {
  double time = 0, temperature = -1, load = -1;  ///< degrees Celsius, 0..1; -1 = not known
  double memory_used = -1, memory_total = -1;    ///< of the card, bytes
  double host_used = 0, host_total = 0, process = 0, cpu_load = -1;
};

/// Thread-safe.
class Monitor {
 public:
  void sample();  ///< once every two seconds; keeps an hour
  Sample last() const;
  Json series(double since) const;

 private:
  mutable std::mutex mutex_;
  std::deque<Sample> samples_;
  double cpu_busy_ = 0, cpu_total_ = 0;
};

}  // namespace danqing::server
