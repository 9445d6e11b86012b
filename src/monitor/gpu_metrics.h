// amdgpu's binary table of a card's state, /sys/class/drm/card*/device/gpu_metrics. Layouts: the structs gpu_metrics_v*
// in Linux' drivers/gpu/drm/amd/include/kgd_pp_interface.h, with the natural alignment of x86-64. Formats 1 (cards), 2
// and 3 (APUs); revisions 1.0 to 1.8, 2.0 to 2.4, 3.0. They do not extend one another: each has offsets of its own.
#pragma once
#include <cstddef>
#include <span>
#include <string>

#include "monitor/reading.h"

namespace danqing::monitor {

struct GpuMetrics {
  int format = 0, content = 0;  ///< revision, "v1_3" is 1 and 3
  std::optional<double> edge_celsius, junction_celsius, memory_celsius;
  std::optional<double> load, memory_load;  ///< 0..1
  std::optional<double> power_watts;
  std::optional<double> energy_joules;  ///< only where the table's unit is documented: from 1.4 on
  std::optional<double> core_mhz, memory_mhz;
  std::optional<double> fan_rpm;
  std::optional<double> pcie_gts;
  std::optional<int> pcie_width;
  std::optional<std::vector<std::string>> throttled;  ///< see CardReading
  std::optional<ThrottleCounters> throttle_counters;
};

/// Error (bad_input): too short, a size that is not the revision's, an unknown revision.
Result<GpuMetrics> parse_gpu_metrics(std::span<const std::byte> table);

/// The ASIC-independent throttle bits (SMU_THROTTLER_*_BIT of amdgpu_smu.h) as words.
std::vector<std::string> throttle_reasons(uint64_t bits);

}  // namespace danqing::monitor
