#include "monitor/reading.h"

#include <algorithm>
#include <mutex>

#include "monitor/cards.h"

namespace danqing::monitor {
namespace {

template <class T>
Json known(const std::optional<T>& v) {
  return v ? Json(*v) : Json();
}

}  // namespace

std::vector<CardReading> read_cards(const Options& options) {
  static std::mutex mutex;  // NVML's handle is kept
  const std::lock_guard lock(mutex);
  std::vector<CardReading> cards = read_amd_cards(options);
  for (CardReading& c : read_nvidia_cards(options)) cards.push_back(std::move(c));
  std::stable_sort(cards.begin(), cards.end(),
                   [](const CardReading& a, const CardReading& b) { return a.pci < b.pci; });
  return cards;
}

Json to_json(const CardReading& c) {
  Json j{{"id", c.id},
         {"vendor", c.vendor},
         {"pci", c.pci},
         {"name", c.name},
         {"gfx", c.gfx},
         {"driver", c.driver},
         {"numa_node", known(c.numa_node)},
         {"temperature_celsius",
          {{"edge", known(c.edge_celsius)},
           {"junction", known(c.junction_celsius)},
           {"memory", known(c.memory_celsius)},
           {"critical", known(c.critical_celsius)}}},
         {"load_ratio", known(c.load)},
         {"memory_load_ratio", known(c.memory_load)},
         {"vram_used_bytes", known(c.vram_used)},
         {"vram_total_bytes", known(c.vram_total)},
         {"visible_vram_total_bytes", known(c.visible_vram_total)},
         {"gtt_used_bytes", known(c.gtt_used)},
         {"gtt_total_bytes", known(c.gtt_total)},
         {"power_watts", known(c.power_watts)},
         {"power_cap_watts", known(c.power_cap_watts)},
         {"energy_joules", known(c.energy_joules)},
         {"core_mhz", known(c.core_mhz)},
         {"memory_mhz", known(c.memory_mhz)},
         {"fan_rpm", known(c.fan_rpm)},
         {"fan_ratio", known(c.fan_ratio)},
         {"pcie",
          {{"gts", known(c.pcie_gts)},
           {"width", known(c.pcie_width)},
           {"max_gts", known(c.pcie_max_gts)},
           {"max_width", known(c.pcie_max_width)}}},
         {"throttled", known(c.throttled)}};
  if (!c.notes.empty()) j["notes"] = c.notes;
  return j;
}

Json to_json(const HostReading& h) {
  Json j{{"load1", known(h.load1)},
         {"load5", known(h.load5)},
         {"load15", known(h.load15)},
         {"cpu_load_ratio", known(h.cpu_load)},
         {"memory_total_bytes", known(h.memory_total)},
         {"memory_available_bytes", known(h.memory_available)},
         {"memory_limit_bytes", known(h.memory_limit)},
         {"swap_total_bytes", known(h.swap_total)},
         {"swap_free_bytes", known(h.swap_free)},
         {"numa_nodes", Json::array()}};
  for (const NumaNode& n : h.nodes)
    j["numa_nodes"].push_back(
        {{"id", n.id}, {"cpus", n.cpus}, {"memory_total_bytes", n.memory_total}, {"memory_free_bytes", n.memory_free}});
  return j;
}

}  // namespace danqing::monitor
