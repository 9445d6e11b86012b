// Timing, memory and the table of a benchmark.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "base/json.h"

namespace danqing::app {

struct Measurement {
  std::string stage, what;  ///< "denoiser", "step 512x512, 64 text tokens"
  double seconds = 0;       ///< median of the repetitions
  double min_seconds = 0;
  int repetitions = 1;
  double flops = 0;              ///< per repetition, 0 = not meaningful
  double tokens_per_second = 0;  ///< 0 = not meaningful
  double bytes_per_second = 0;   ///< of a load, 0 = not meaningful
  double relative_l2 = 0;        ///< of a difference, 0 = none was measured
  uint64_t weight_bytes = 0, compute_bytes = 0, peak_rss = 0;
};

/// Runs once to warm up, then `repetitions` times; fills seconds and peak_rss.
Result<Measurement> measure(std::string stage, std::string what, int repetitions, bool warm_up,
                            const std::function<Result<void>()>& run);
uint64_t peak_rss_bytes();  ///< of this process so far
std::string processor_name();
Json to_json(const Measurement& m);
std::string table_head();
std::string table_row(const Measurement& m);

}  // namespace danqing::app
