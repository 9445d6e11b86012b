// What a card and the host say about themselves at one moment. Everything that a driver may leave out is optional.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"

namespace danqing::monitor {

struct Options {
  /// In place of "/": sys/ and proc/ are read below it. Another root than "/" asks no library for NVIDIA cards, unless
  /// `nvml` names one.
  std::filesystem::path root = "/";
  /// NVIDIA's management library; empty: libnvidia-ml.so.1 where the system has it.
  std::string nvml;
};

/// How often the card was held back, counted by its firmware since the driver was loaded; all in the same ticks.
struct ThrottleCounters {
  uint64_t ticks = 0;
  std::vector<std::pair<std::string, uint64_t>> held;  ///< reason and ticks
};

struct CardReading {
  std::string id;      ///< "card0" of /sys/class/drm, "nvidia0"
  std::string vendor;  ///< "amd", "nvidia"
  std::string pci;     ///< "0000:03:00.0"; may be empty
  std::string name;    ///< as sold, "AMD Radeon RX 7900 XTX", or the PCI numbers
  std::string gfx;     ///< "gfx1100", "sm_90"; empty: not known
  std::string driver;  ///< version
  std::optional<int> numa_node;

  std::optional<double> edge_celsius, junction_celsius, memory_celsius;  ///< on APUs and NVIDIA cards edge alone
  std::optional<double> critical_celsius;                                ///< of the hottest spot, by the driver
  std::optional<double> load, memory_load;                               ///< 0..1: compute units, memory controller
  std::optional<uint64_t> vram_used, vram_total, visible_vram_total, gtt_used, gtt_total;  ///< bytes
  std::optional<double> power_watts, power_cap_watts;
  std::optional<double> energy_joules;  ///< counted by the card, from a start of its own
  std::optional<double> core_mhz, memory_mhz;
  std::optional<double> fan_rpm, fan_ratio;
  std::optional<double> pcie_gts, pcie_max_gts;  ///< GT/s a lane
  std::optional<int> pcie_width, pcie_max_width;
  /// What slows the card now: "power", "current", "temperature", "other"; empty: nothing does; absent: it does not say.
  std::optional<std::vector<std::string>> throttled;
  std::optional<ThrottleCounters> throttle_counters;
  std::vector<std::string> notes;  ///< what was there and could not be understood, one line each
};

struct NumaNode {
  int id = 0;
  std::string cpus;  ///< as the kernel lists them, "0-15,32-47"
  uint64_t memory_total = 0, memory_free = 0;
};

struct HostReading {
  std::optional<double> load1, load5, load15;
  std::optional<uint64_t> memory_total, memory_available, swap_total, swap_free;
  std::optional<uint64_t> memory_limit;  ///< of the control group, where it is less than the machine's memory
  std::optional<uint64_t> process_resident;
  std::optional<double> cpu_load;  ///< 0..1 since the sample before
  double cpu_busy_ticks = 0, cpu_all_ticks = 0;
  std::vector<NumaNode> nodes;
};

/// Never fails: what cannot be read is absent. In the order of the PCI addresses.
std::vector<CardReading> read_cards(const Options& options = {});
HostReading read_host(const Options& options = {});

Json to_json(const CardReading& card);
Json to_json(const HostReading& host);

}  // namespace danqing::monitor
