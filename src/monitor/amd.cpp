// amdgpu's files below /sys/class/drm/card*/device. The first of several sources that answers counts.
#include <algorithm>
#include <charconv>
#include <map>

#include "base/text.h"
#include "base/try.h"
#include "device/gfx.h"
#include "monitor/cards.h"
#include "monitor/gpu_metrics.h"
#include "monitor/sysfs.h"

namespace danqing::monitor {
namespace {

namespace fs = std::filesystem;
constexpr double kBytes = 1e15, kMicrowatts = 1e10, kHertz = 1e11;

std::optional<uint64_t> read_size(const fs::path& path) {
  const auto v = read_number(path, 0, kBytes);
  return v ? std::optional<uint64_t>(static_cast<uint64_t>(*v)) : std::nullopt;
}

/// What Linux and Mesa know a PCI device as: libdrm's table of AMD cards first, then the general one.
std::string marketing_name(const fs::path& root, unsigned vendor, unsigned device, unsigned revision) {
  const auto upper = [](unsigned v, int width) { return fmt::format("{:0{}X}", v, width); };
  if (const auto ids = read_bytes(root / "usr/share/libdrm/amdgpu.ids", 1 << 20)) {
    // "744C,	C8,	AMD Radeon RX 7900 XTX"
    const std::string want = "\n" + upper(device, 4) + ",";
    for (size_t at = ids->find(want); at != std::string::npos; at = ids->find(want, at + 1)) {
      const std::string line = ids->substr(at + 1, ids->find('\n', at + 1) - at - 1);
      const size_t comma = line.find(',', 5);
      if (comma == std::string::npos || line.find(upper(revision, 2), 5) >= comma) continue;
      const size_t name = line.find_first_not_of(" \t", comma + 1);
      if (name != std::string::npos) return one_line(line.substr(name), 80);
    }
  }
  for (const char* file : {"usr/share/hwdata/pci.ids", "usr/share/misc/pci.ids"}) {
    const auto ids = read_bytes(root / file, 8 << 20);
    if (!ids) continue;
    const size_t begin = ids->find(fmt::format("\n{:04x}  ", vendor));
    if (begin == std::string::npos) continue;
    const std::string want = fmt::format("\n\t{:04x}  ", device);
    const size_t at = ids->find(want, begin + 1);
    // The vendor's part ends where a line starts with another number.
    size_t end = begin;
    do end = ids->find('\n', end + 1);
    while (end != std::string::npos && end + 1 < ids->size() && ((*ids)[end + 1] == '\t' || (*ids)[end + 1] == '#'));
    if (at == std::string::npos || at > end) continue;
    const size_t name = at + want.size();
    return "AMD " + one_line(ids->substr(name, ids->find('\n', name) - name), 80);
  }
  return fmt::format("AMD {:04x}:{:04x}", vendor, device);
}

unsigned read_hex(const fs::path& path) {
  const auto line = read_line(path);
  unsigned v = 0;
  if (line && line->size() > 2 && line->compare(0, 2, "0x") == 0)
    std::from_chars(line->data() + 2, line->data() + line->size(), v, 16);
  return v;
}

/// "0000:03:00.0" from uevent, or the name of the directory that the link leads to.
std::string pci_address(const fs::path& device) {
  if (const auto text = read_bytes(device / "uevent", 4096)) {
    const std::string key = "PCI_SLOT_NAME=";
    if (const size_t at = text->find(key); at != std::string::npos) {
      const size_t begin = at + key.size();
      return one_line(text->substr(begin, text->find('\n', begin) - begin), 20);
    }
  }
  std::error_code ec;
  const std::string name = fs::canonical(device, ec).filename().string();
  return !ec && std::count(name.begin(), name.end(), ':') == 2 ? name : "";
}

/// The line with the star of "0: 500Mhz\n1: 2000Mhz *".
std::optional<double> chosen_clock(const fs::path& file) {
  const auto text = read_bytes(file, 8192);
  if (!text) return {};
  const size_t star = text->find('*');
  if (star == std::string::npos) return {};
  const size_t newline = text->rfind('\n', star);
  const std::string line = text->substr(newline == std::string::npos ? 0 : newline + 1);
  const size_t colon = line.find(": ");
  if (colon == std::string::npos) return {};
  const auto v = leading_number(std::string_view(line).substr(colon + 2));
  return v && *v > 0 && *v < 20000 ? v : std::nullopt;
}

void read_hwmon(const fs::path& device, CardReading& c) {
  for (const std::string& name : numbered(device / "hwmon", "hwmon")) {
    const fs::path dir = device / "hwmon" / name;
    for (int i = 1; i <= 8; ++i) {
      const std::string temp = "temp" + std::to_string(i);
      const auto milli = read_number(dir / (temp + "_input"), -40000, 200000);
      if (!milli) continue;
      const std::string label = read_line(dir / (temp + "_label")).value_or(i == 1 ? "edge" : "");
      auto* to = label == "edge"       ? &c.edge_celsius
                 : label == "junction" ? &c.junction_celsius
                 : label == "mem"      ? &c.memory_celsius
                                       : nullptr;
      if (!to) continue;
      *to = *milli / 1000;
      // A limit that the firmware did not set is 0 or a thousand degrees.
      if (const auto limit = read_number(dir / (temp + "_crit"), 40000, 200000);
          limit && label != "mem" && (!c.critical_celsius || label == "junction"))
        c.critical_celsius = *limit / 1000;
    }
    for (const char* file : {"power1_average", "power1_input"})
      if (const auto v = read_number(dir / file, 0, kMicrowatts); v && !c.power_watts) c.power_watts = *v / 1e6;
    if (const auto v = read_number(dir / "power1_cap", 1, kMicrowatts)) c.power_cap_watts = *v / 1e6;
    for (int i = 1; i <= 2; ++i) {
      const std::string freq = "freq" + std::to_string(i);
      const auto hertz = read_number(dir / (freq + "_input"), 1, kHertz);
      const std::string label = read_line(dir / (freq + "_label")).value_or("");
      if (hertz && label == "sclk") c.core_mhz = *hertz / 1e6;
      if (hertz && label == "mclk") c.memory_mhz = *hertz / 1e6;
    }
    if (const auto v = read_number(dir / "fan1_input", 0, 50000)) c.fan_rpm = *v;
    const double full = read_number(dir / "pwm1_max", 1, 65535).value_or(255);
    if (const auto v = read_number(dir / "pwm1", 0, full)) c.fan_ratio = *v / full;
  }
}

void read_link(const fs::path& device, CardReading& c) {
  const auto speed = [&](const char* file) -> std::optional<double> {
    const auto line = read_line(device / file);
    const auto v = line ? leading_number(*line) : std::nullopt;
    return v && *v >= 1 && *v <= 512 ? v : std::nullopt;
  };
  const auto width = [&](const char* file) -> std::optional<int> {
    const auto v = read_number(device / file, 1, 32);
    return v ? std::optional<int>(static_cast<int>(*v)) : std::nullopt;
  };
  c.pcie_gts = speed("current_link_speed");
  c.pcie_max_gts = speed("max_link_speed");
  c.pcie_width = width("current_link_width");
  c.pcie_max_width = width("max_link_width");
}

template <class T>
void fill(std::optional<T>& to, const std::optional<T>& from) {
  if (!to) to = from;
}

void read_table(const fs::path& device, CardReading& c) {
  const auto bytes = read_bytes(device / "gpu_metrics");
  if (!bytes || bytes->empty()) return;
  const auto parsed = parse_gpu_metrics(std::as_bytes(std::span(bytes->data(), bytes->size())));
  if (!parsed) {
    c.notes.push_back(parsed.error().message);
    return;
  }
  const GpuMetrics& m = *parsed;
  fill(c.edge_celsius, m.edge_celsius), fill(c.junction_celsius, m.junction_celsius);
  fill(c.memory_celsius, m.memory_celsius);
  fill(c.load, m.load), fill(c.memory_load, m.memory_load);
  fill(c.power_watts, m.power_watts), fill(c.energy_joules, m.energy_joules);
  fill(c.core_mhz, m.core_mhz), fill(c.memory_mhz, m.memory_mhz), fill(c.fan_rpm, m.fan_rpm);
  // Cards have a switch of their own: the link in sysfs is the one behind it, the table's goes to the host.
  if (m.pcie_gts) c.pcie_gts = m.pcie_gts;
  if (m.pcie_width) c.pcie_width = m.pcie_width;
  c.throttled = m.throttled;
  c.throttle_counters = m.throttle_counters;
}

}  // namespace

std::vector<CardReading> read_amd_cards(const Options& o) {
  std::vector<CardReading> cards;
  const fs::path drm = o.root / "sys/class/drm";
  const std::map<std::string, std::string> gfx = gfx_targets(o.root);
  const std::string driver = read_line(o.root / "sys/module/amdgpu/version").value_or("");
  for (const std::string& id : numbered(drm, "card")) {
    const fs::path device = drm / id / "device";
    const unsigned vendor = read_hex(device / "vendor");
    if (vendor != 0x1002) continue;
    CardReading c;
    c.id = id;
    c.vendor = "amd";
    c.pci = pci_address(device);
    c.driver = driver;
    c.name = one_line(read_line(device / "product_name").value_or(""), 80);
    if (c.name.empty())
      c.name = marketing_name(o.root, vendor, read_hex(device / "device"), read_hex(device / "revision"));
    if (const auto it = gfx.find(c.pci); it != gfx.end()) c.gfx = it->second;
    if (const auto v = read_number(device / "numa_node", 0, 4095)) c.numa_node = static_cast<int>(*v);
    if (const auto v = read_number(device / "gpu_busy_percent", 0, 100)) c.load = *v / 100;
    if (const auto v = read_number(device / "mem_busy_percent", 0, 100)) c.memory_load = *v / 100;
    c.vram_used = read_size(device / "mem_info_vram_used");
    c.vram_total = read_size(device / "mem_info_vram_total");
    c.visible_vram_total = read_size(device / "mem_info_vis_vram_total");
    c.gtt_used = read_size(device / "mem_info_gtt_used");
    c.gtt_total = read_size(device / "mem_info_gtt_total");
    read_hwmon(device, c);
    fill(c.core_mhz, chosen_clock(device / "pp_dpm_sclk"));
    fill(c.memory_mhz, chosen_clock(device / "pp_dpm_mclk"));
    read_link(device, c);
    read_table(device, c);
    cards.push_back(std::move(c));
  }
  return cards;
}

}  // namespace danqing::monitor
