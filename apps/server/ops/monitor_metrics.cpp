#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>

#include "server/ops/monitor.h"

namespace danqing::server {
namespace {

using prometheus::Labels;

/// A registry for one answer: a card that went away is gone from the next one.
class Page {
 public:
  template <class T>
  void gauge(const char* name, const char* help, const Labels& labels, const std::optional<T>& v) {
    if (v) prometheus::BuildGauge().Name(name).Help(help).Register(registry_).Add(labels).Set(static_cast<double>(*v));
  }
  void counter(const char* name, const char* help, const Labels& labels, const std::optional<double>& v) {
    if (v) prometheus::BuildCounter().Name(name).Help(help).Register(registry_).Add(labels).Increment(*v);
  }
  std::string text() const { return prometheus::TextSerializer().Serialize(registry_.Collect()); }

 private:
  prometheus::Registry registry_;
};

std::optional<double> times(std::optional<double> v, double factor) {
  return v ? std::optional<double>(*v * factor) : std::nullopt;
}

Labels with(Labels labels, const char* key, const std::string& value) {
  labels[key] = value;
  return labels;
}

void add_card(Page& p, const monitor::CardReading& c) {
  const Labels l{{"gpu", c.id}, {"name", c.name}, {"gfx", c.gfx}};
  const char* t = "danqing_gpu_temperature_celsius";
  const char* t_help = "Temperature by sensor";
  p.gauge(t, t_help, with(l, "sensor", "edge"), c.edge_celsius);
  p.gauge(t, t_help, with(l, "sensor", "junction"), c.junction_celsius);
  p.gauge(t, t_help, with(l, "sensor", "memory"), c.memory_celsius);
  p.gauge("danqing_gpu_critical_temperature_celsius", "Temperature at which the card protects itself", l,
          c.critical_celsius);
  p.gauge("danqing_gpu_load_ratio", "Load of the compute units, 0 to 1", l, c.load);
  p.gauge("danqing_gpu_memory_load_ratio", "Load of the memory controller, 0 to 1", l, c.memory_load);
  p.gauge("danqing_gpu_vram_used_bytes", "Used memory of the card", l, c.vram_used);
  p.gauge("danqing_gpu_vram_total_bytes", "Memory of the card", l, c.vram_total);
  p.gauge("danqing_gpu_gtt_used_bytes", "Host memory that the card uses", l, c.gtt_used);
  p.gauge("danqing_gpu_gtt_total_bytes", "Host memory that the card may use", l, c.gtt_total);
  p.gauge("danqing_gpu_power_watts", "Power", l, c.power_watts);
  p.gauge("danqing_gpu_power_cap_watts", "Power limit", l, c.power_cap_watts);
  p.counter("danqing_gpu_energy_joules_total", "Energy counted by the card", l, c.energy_joules);
  p.gauge("danqing_gpu_clock_hertz", "Clock", with(l, "clock", "core"), times(c.core_mhz, 1e6));
  p.gauge("danqing_gpu_clock_hertz", "Clock", with(l, "clock", "memory"), times(c.memory_mhz, 1e6));
  p.gauge("danqing_gpu_fan_rpm", "Turns of the fan a minute", l, c.fan_rpm);
  p.gauge("danqing_gpu_fan_ratio", "Drive of the fan, 0 to 1", l, c.fan_ratio);
  p.gauge("danqing_gpu_pcie_transfers_per_second", "Transfers a second and lane of the PCIe link", l,
          times(c.pcie_gts, 1e9));
  p.gauge("danqing_gpu_pcie_lanes", "Lanes of the PCIe link", l, c.pcie_width);
  if (c.throttled)
    for (const char* reason : {"power", "current", "temperature", "other"})
      p.gauge("danqing_gpu_throttled", "1 while the card is held back, by reason", with(l, "reason", reason),
              std::optional<int>(std::count(c.throttled->begin(), c.throttled->end(), reason) > 0));
}

}  // namespace

std::string monitor_metrics(const monitor::Snapshot& s) {
  Page p;
  for (const monitor::CardReading& c : s.cards) add_card(p, c);
  const monitor::HostReading& h = s.host;
  p.gauge("danqing_host_memory_total_bytes", "Memory of the host", {}, h.memory_total);
  p.gauge("danqing_host_memory_available_bytes", "Memory of the host that programs can still get", {},
          h.memory_available);
  p.gauge("danqing_host_memory_limit_bytes", "Limit of the control group", {}, h.memory_limit);
  p.gauge("danqing_host_cpu_load_ratio", "Load of the processors, 0 to 1", {}, h.cpu_load);
  p.gauge("danqing_host_load1", "Processes that ran or waited, over a minute", {}, h.load1);
  for (const monitor::NumaNode& n : h.nodes) {
    const Labels l{{"node", std::to_string(n.id)}};
    p.gauge("danqing_host_numa_memory_total_bytes", "Memory of a node", l, std::optional(n.memory_total));
    p.gauge("danqing_host_numa_memory_free_bytes", "Free memory of a node", l, std::optional(n.memory_free));
  }
  return p.text();
}

}  // namespace danqing::server
