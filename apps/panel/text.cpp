#include "panel/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>

#include "base/text.h"
#include "base/units.h"

namespace danqing::app {
namespace {

using monitor::CardReading;
using monitor::HostReading;
using monitor::Snapshot;

template <class... A>
std::string join(const char* between, const A&... parts) {
  std::string out;
  for (const std::string& p : {std::string(parts)...})
    if (!p.empty()) out += (out.empty() ? "" : between) + p;
  return out;
}

std::string percent(const char* label, std::optional<double> v) {
  return v ? fmt::format("{} {:.0f} %", label, *v * 100) : "";
}

std::string bytes_of(const char* label, std::optional<uint64_t> used, std::optional<uint64_t> total) {
  if (!used && !total) return "";
  const double gib = static_cast<double>(uint64_t{1} << 30);
  if (!used) return fmt::format("{} {:.1f} GiB", label, static_cast<double>(*total) / gib);
  if (!total) return fmt::format("{} {:.1f} GiB used", label, static_cast<double>(*used) / gib);
  return fmt::format("{} {:.1f}/{:.1f} GiB", label, static_cast<double>(*used) / gib,
                     static_cast<double>(*total) / gib);
}

std::string temperatures(const CardReading& c, bool unicode) {
  std::string out;
  const auto add = [&](const char* label, std::optional<double> v) {
    if (v) out += fmt::format("{}{} {:.0f}", out.empty() ? "" : ", ", label, *v);
  };
  add("edge", c.edge_celsius), add("junction", c.junction_celsius), add("memory", c.memory_celsius);
  if (out.empty()) return out;
  if (c.critical_celsius) out += fmt::format(" (limit {:.0f})", *c.critical_celsius);
  return out + (unicode ? " \u00b0C" : " C");
}

std::string power(const CardReading& c) {
  if (!c.power_watts && !c.power_cap_watts) return "";
  if (!c.power_watts) return fmt::format("cap {:.0f} W", *c.power_cap_watts);
  return c.power_cap_watts ? fmt::format("{:.0f}/{:.0f} W", *c.power_watts, *c.power_cap_watts)
                           : fmt::format("{:.0f} W", *c.power_watts);
}

std::string energy(const CardReading& c) {
  if (!c.energy_joules) return "";
  return *c.energy_joules < 3.6e6 ? fmt::format("{:.0f} kJ counted", *c.energy_joules / 1e3)
                                  : fmt::format("{:.1f} kWh counted", *c.energy_joules / 3.6e6);
}

std::string clocks(const CardReading& c) {
  return join(", ", c.core_mhz ? fmt::format("core {:.0f} MHz", *c.core_mhz) : "",
              c.memory_mhz ? fmt::format("memory {:.0f} MHz", *c.memory_mhz) : "");
}

std::string fan(const CardReading& c) {
  return c.fan_rpm && *c.fan_rpm > 0 && c.fan_ratio
             ? fmt::format("fan {:.0f} rpm ({:.0f} %)", *c.fan_rpm, *c.fan_ratio * 100)
         : c.fan_rpm ? (*c.fan_rpm > 0 ? fmt::format("fan {:.0f} rpm", *c.fan_rpm) : "fan off")
                     : percent("fan", c.fan_ratio);
}

std::string link(const CardReading& c) {
  if (!c.pcie_gts && !c.pcie_width) return "";
  std::string out = "PCIe";
  if (c.pcie_gts) out += fmt::format(" {:g} GT/s", *c.pcie_gts);
  if (c.pcie_width) out += fmt::format(" x{}", *c.pcie_width);
  const bool less = (c.pcie_max_gts && c.pcie_gts && *c.pcie_gts < *c.pcie_max_gts) ||
                    (c.pcie_max_width && c.pcie_width && *c.pcie_width < *c.pcie_max_width);
  if (less && c.pcie_max_gts && c.pcie_max_width)
    out += fmt::format(" (of {:g} x{})", *c.pcie_max_gts, *c.pcie_max_width);
  return out;
}

std::string throttling(const CardReading& c) {
  if (!c.throttled) return "";
  if (c.throttled->empty()) return "not throttled";
  std::string out = "THROTTLED by ";
  for (size_t i = 0; i < c.throttled->size(); ++i) out += (i ? ", " : "") + (*c.throttled)[i];
  return out;
}

std::string title(const CardReading& c) {
  const std::string node = c.numa_node ? fmt::format("node {}", *c.numa_node) : "";
  return join("  ", c.id, c.name, c.gfx, c.pci, node);
}

std::string host_memory(const HostReading& h) {
  if (!h.memory_total) return "";
  std::optional<uint64_t> used;
  if (h.memory_available) used.emplace(*h.memory_total - std::min(*h.memory_total, *h.memory_available));
  std::string out = bytes_of("memory", used, h.memory_total);
  if (h.memory_limit) out += fmt::format(" (limit {})", format_bytes(*h.memory_limit));
  if (h.swap_total.value_or(0) > 0 && h.swap_free)
    out += ", " + bytes_of("swap", *h.swap_total - std::min(*h.swap_total, *h.swap_free), h.swap_total);
  return out;
}

std::string host_line(const HostReading& h) {
  const std::string load =
      h.load1 ? fmt::format("load {:.2f} {:.2f} {:.2f}", *h.load1, h.load5.value_or(0), h.load15.value_or(0)) : "";
  return join("  ", percent("cpu", h.cpu_load), load, host_memory(h));
}

std::vector<std::string> node_lines(const HostReading& h) {
  std::vector<std::string> out;
  if (h.nodes.size() < 2) return out;
  for (const auto& n : h.nodes)
    out.push_back(
        fmt::format("  node {}: cpus {}, {}", n.id, n.cpus.empty() ? "none" : n.cpus,
                    bytes_of("memory", n.memory_total - std::min(n.memory_total, n.memory_free), n.memory_total)));
  return out;
}

std::vector<std::string> card_lines(const CardReading& c, bool unicode) {
  std::vector<std::string> out;
  for (const std::string& line :
       {join("  ", percent("load", c.load), percent("memory bus", c.memory_load),
             bytes_of("VRAM", c.vram_used, c.vram_total), bytes_of("GTT", c.gtt_used, c.gtt_total)),
        join("  ", temperatures(c, unicode), power(c), fan(c)), join("  ", clocks(c), link(c)),
        join("  ", throttling(c), energy(c))})
    if (!line.empty()) out.push_back("  " + line);
  for (const std::string& n : c.notes) out.push_back("  not understood: " + one_line(n, 200));
  return out;
}

/// Columns that a terminal gives our text: no letter here is wider than one, so code points count.
size_t columns(std::string_view s) {
  return static_cast<size_t>(std::count_if(s.begin(), s.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string fit(const std::string& s, int width) {
  size_t bytes = 0;
  for (int n = 0; bytes < s.size() && n < width; ++n) {
    ++bytes;
    while (bytes < s.size() && (s[bytes] & 0xc0) == 0x80) ++bytes;
  }
  return s.substr(0, bytes);
}

std::string clock_text(double time) {
  const auto t = static_cast<std::time_t>(time);
  std::tm local{};
  localtime_r(&t, &local);
  char text[16];
  std::strftime(text, sizeof text, "%H:%M:%S", &local);
  return text;
}

struct Curve {
  const char* name;
  std::optional<double> (*value)(const CardReading&);
  double top;  ///< 0: of the values
  const char* unit;
};
std::optional<double> used_ratio(const CardReading& c) {
  if (!c.vram_used || !c.vram_total || *c.vram_total == 0) return {};
  return static_cast<double>(*c.vram_used) / static_cast<double>(*c.vram_total) * 100;
}
std::optional<double> hottest(const CardReading& c) { return c.junction_celsius ? c.junction_celsius : c.edge_celsius; }
const Curve kCurves[] = {
    {"load", [](const CardReading& c) { return c.load ? std::optional(*c.load * 100) : std::nullopt; }, 100, "%"},
    {"VRAM", used_ratio, 100, "%"},
    {"temp", hottest, 110, "C"},
    {"power", [](const CardReading& c) { return c.power_watts; }, 0, "W"},
};

/// "load   42 % ....::::||||" of one card over time; empty when the card never said.
std::string curve_line(const std::deque<Snapshot>& history, const std::string& id, const Curve& curve,
                       const PanelStyle& st) {
  std::vector<std::optional<double>> values;
  double top = curve.top;
  for (const Snapshot& s : history) {
    std::optional<double> v;
    for (const CardReading& c : s.cards)
      if (c.id == id) {
        v = curve.value(c);
        if (curve.top == 0) top = std::max({top, v.value_or(0), c.power_cap_watts.value_or(0)});
      }
    values.push_back(v);
  }
  if (std::none_of(values.begin(), values.end(), [](const auto& v) { return v.has_value(); })) return "";
  const std::string now = values.back() ? fmt::format("{:.0f}", *values.back()) : "?";
  const std::string head = fmt::format("  {:<5} {:>4} {} ", curve.name, now, curve.unit);
  return head + graph(values, top, std::max(8, st.width - static_cast<int>(columns(head)) - 1), st.unicode);
}

}  // namespace

std::string graph(const std::vector<std::optional<double>>& values, double top, int width, bool unicode) {
  static constexpr const char* kBlocks[] = {"\u2581", "\u2582", "\u2583", "\u2584",
                                            "\u2585", "\u2586", "\u2587", "\u2588"};
  static constexpr const char* kAscii[] = {"_", ".", "-", "=", "+", "*", "%", "#"};
  std::string out;
  const size_t n = std::min(values.size(), static_cast<size_t>(std::max(0, width)));
  for (size_t i = values.size() - n; i < values.size(); ++i) {
    if (!values[i] || !(top > 0)) {
      out += ' ';
      continue;
    }
    const double share = std::clamp(*values[i] / top, 0.0, 1.0);
    const int level = std::min(7, static_cast<int>(share * 8));
    out += unicode ? kBlocks[level] : kAscii[level];
  }
  return out;
}

std::string snapshot_text(const Snapshot& s, const PanelStyle& st) {
  std::string out = "host  " + host_line(s.host) + "\n";
  for (const std::string& l : node_lines(s.host)) out += l + "\n";
  if (s.cards.empty()) out += "no card found\n";
  for (const CardReading& c : s.cards) {
    out += title(c) + "\n";
    for (const std::string& l : card_lines(c, st.unicode)) out += l + "\n";
  }
  return out;
}

std::string snapshot_lines(const Snapshot& s, bool unicode) {
  const std::string time = clock_text(s.time);
  std::string out = time + " host " + host_line(s.host) + "\n";
  for (const CardReading& c : s.cards)
    out += join("  ", time + " " + c.id, percent("load", c.load), bytes_of("VRAM", c.vram_used, c.vram_total),
                temperatures(c, unicode), power(c), c.core_mhz ? fmt::format("{:.0f} MHz", *c.core_mhz) : "",
                c.throttled && !c.throttled->empty() ? throttling(c) : "") +
           "\n";
  return out;
}

std::string panel_text(const std::deque<Snapshot>& history, const PanelStyle& st) {
  if (history.empty()) return "";
  const Snapshot& now = history.back();
  std::vector<std::string> lines;
  const auto bold = [&](const std::string& s) { return st.colour ? "\x1b[1m" + s + "\x1b[0m" : s; };
  const auto red = [&](const std::string& s) { return st.colour ? "\x1b[31m" + s + "\x1b[0m" : s; };
  lines.push_back(bold(fit(fmt::format("danqing monitor  {}  (q ends)", clock_text(now.time)), st.width)));
  lines.push_back(fit("host  " + host_line(now.host), st.width));
  for (const std::string& l : node_lines(now.host)) lines.push_back(fit(l, st.width));
  if (now.cards.empty()) lines.emplace_back("no card found");
  // Where not everything has room, every card keeps its numbers and loses graphs.
  size_t text = lines.size();
  for (const CardReading& c : now.cards) text += 1 + card_lines(c, st.unicode).size();
  const size_t room = static_cast<size_t>(std::max(0, st.height - 1));
  const size_t graphs = now.cards.empty() || room <= text ? 0 : std::min<size_t>(4, (room - text) / now.cards.size());
  for (const CardReading& c : now.cards) {
    lines.push_back(bold(fit(title(c), st.width)));
    for (const std::string& l : card_lines(c, st.unicode)) {
      const std::string cut = fit(l, st.width);
      lines.push_back(cut.find("THROTTLED") != std::string::npos ? red(cut) : cut);
    }
    for (size_t i = 0; i < graphs; ++i)
      if (std::string l = curve_line(history, c.id, kCurves[i], st); !l.empty()) lines.push_back(fit(l, st.width));
  }
  if (lines.size() > room) lines.resize(room);
  std::string out;
  for (const std::string& l : lines) out += l + "\n";
  return out;
}

}  // namespace danqing::app
