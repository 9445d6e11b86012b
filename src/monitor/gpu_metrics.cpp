#include "monitor/gpu_metrics.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/try.h"

namespace danqing::monitor {
namespace {

/// Where a field lies and how wide it is; width 0: this revision has none.
struct At {
  uint16_t offset = 0;
  uint8_t width = 0;
};
constexpr At u8(int offset) { return {static_cast<uint16_t>(offset), 1}; }
constexpr At u16(int offset) { return {static_cast<uint16_t>(offset), 2}; }
constexpr At u32(int offset) { return {static_cast<uint16_t>(offset), 4}; }
constexpr At u64(int offset) { return {static_cast<uint16_t>(offset), 8}; }

struct Layout {
  int format = 0, content = 0;
  /// Bytes. Tables that end with partitions (from 1.6 on, of a number that changed between drivers) may be longer.
  int size = 0;
  bool open_ended = false;
  At edge, junction, memory, load, memory_load, power;
  double watts = 1;  ///< a unit of `power`
  At energy;         ///< 2^-16 J
  At core, memory_clock;
  int core_count = 1;  ///< clocks that lie side by side; the fastest counts
  At fan, width, speed;
  At throttle_bits;    ///< ASIC-independent
  At throttle_status;  ///< of the ASIC: that something throttles is all it says
  At ticks;            ///< the clock of the counters below
  struct Held {
    const char* reason = "";
    At at;
  } held[7];
};

// The unit of energy_accumulator is documented from v1.4 on. For older tables AMD's own tools multiply by 15.3 uJ,
// which users found to be off by orders of magnitude on some cards (ROCm/amdsmi issue 38), so it is left alone there.
constexpr Layout layout_1_1(int content, int size, At bits) {
  Layout l{.format = 1, .content = content, .size = size};
  l.edge = u16(4), l.junction = u16(6), l.memory = u16(8), l.load = u16(16), l.memory_load = u16(18), l.power = u16(22);
  l.core = u16(54), l.memory_clock = u16(58), l.fan = u16(72), l.width = u16(74), l.speed = u16(76);
  l.throttle_bits = bits;
  if (bits.width == 0) l.throttle_status = u32(68);
  return l;
}
constexpr Layout layout_1_4(int content, int size, At energy, At core, At uclk, At width) {
  Layout l{.format = 1, .content = content, .size = size};
  l.junction = u16(4), l.memory = u16(6), l.power = u16(10), l.load = u16(12), l.memory_load = u16(14);
  l.energy = energy, l.core = core, l.core_count = 8, l.memory_clock = uclk;
  l.width = width, l.speed = u16(width.offset + 2);
  return l;
}
constexpr Layout with_status(Layout l, At status) {
  l.throttle_status = status;
  return l;
}
constexpr Layout layout_1_6(int content, int size, int shift, At core, At uclk) {
  Layout l = layout_1_4(content, size, u64(16 + shift), core, uclk, u16(60 + shift));
  l.open_ended = true;
  l.ticks = u32(32 + shift);
  l.held[0] = {"temperature", u32(36 + shift)};  // PROCHOT
  l.held[1] = {"power", u32(40 + shift)};
  l.held[2] = {"temperature", u32(44 + shift)};  // socket
  l.held[3] = {"temperature", u32(48 + shift)};  // voltage regulators
  l.held[4] = {"temperature", u32(52 + shift)};  // HBM
  return l;
}
constexpr Layout layout_1_0() {
  Layout l{.format = 1, .content = 0, .size = 80};
  l.edge = u16(16), l.junction = u16(18), l.memory = u16(20), l.load = u16(28), l.memory_load = u16(30);
  l.power = u16(34), l.core = u16(54), l.memory_clock = u16(58), l.throttle_status = u32(68), l.fan = u16(72);
  l.width = u8(74), l.speed = u8(75);
  return l;
}
constexpr Layout layout_2_0() {
  Layout l{.format = 2, .content = 0, .size = 120};
  l.edge = u16(16), l.load = u16(40), l.core = u16(80), l.memory_clock = u16(84), l.throttle_status = u32(112);
  return l;
}
/// Which unit older APUs have for their power depends on the chip; hwmon says it in one.
constexpr Layout layout_2_1(int content, int size) {
  Layout l{.format = 2, .content = content, .size = size};
  l.edge = u16(4), l.load = u16(28), l.core = u16(76), l.memory_clock = u16(80);
  if (content >= 2)
    l.throttle_bits = u64(120);
  else
    l.throttle_status = u32(108);
  if (content >= 4) l.power = u16(40), l.watts = 1e-3;
  return l;
}
constexpr Layout layout_3_0() {
  Layout l{.format = 3, .content = 0, .size = 264};
  l.edge = u16(4), l.load = u16(42), l.power = u32(112), l.watts = 1e-3, l.core = u16(174), l.memory_clock = u16(186);
  l.held[0] = {"temperature", u32(228)};  // PROCHOT
  for (int i = 1; i <= 3; ++i) l.held[i] = {"power", u32(228 + 4 * i)};
  for (int i = 4; i <= 6; ++i) l.held[i] = {"temperature", u32(228 + 4 * i)};
  return l;
}

constexpr Layout kLayouts[] = {
    layout_1_0(),
    layout_1_1(1, 96, {}),
    layout_1_1(2, 104, {}),
    layout_1_1(3, 120, u64(112)),
    with_status(layout_1_4(4, 288, u64(24), u16(240), u16(280), u16(48)), u32(40)),
    with_status(layout_1_4(5, 360, u64(88), u16(312), u16(352), u16(112)), u32(104)),
    layout_1_6(6, 308, 0, u16(264), u16(304)),
    layout_1_6(7, 340, 8, u16(296), u16(336)),
    layout_1_6(8, 340, 8, u16(296), u16(336)),
    layout_2_0(),
    layout_2_1(1, 120),
    layout_2_1(2, 128),
    layout_2_1(3, 152),
    layout_2_1(4, 168),
    layout_3_0(),
};

/// The driver fills a table with ones and then writes what the firmware gave: all ones is "not there".
std::optional<uint64_t> value(std::span<const std::byte> t, At at, int index = 0) {
  if (at.width == 0) return {};
  const size_t offset = at.offset + static_cast<size_t>(index) * at.width;
  if (offset + at.width > t.size()) return {};
  const std::byte* p = t.data() + offset;
  const uint64_t v = at.width == 1   ? load_le<uint8_t>(p)
                     : at.width == 2 ? load_le<uint16_t>(p)
                     : at.width == 4 ? load_le<uint32_t>(p)
                                     : load_le<uint64_t>(p);
  if (v == (at.width == 8 ? ~uint64_t{0} : (uint64_t{1} << (8 * at.width)) - 1)) return {};
  return v;
}

std::optional<double> within(std::optional<double> v, double min, double max) {
  return v && *v >= min && *v <= max ? v : std::nullopt;
}

/// Degrees; APUs give hundredths, without saying so before 2.4. No chip runs at 200 degrees, and none that runs is
/// at 2.
std::optional<double> celsius(std::span<const std::byte> t, At at, bool apu) {
  const auto v = value(t, at);
  if (!v || *v == 0) return {};
  return within(static_cast<double>(*v) / (apu && *v >= 200 ? 100 : 1), 1, 200);
}
std::optional<double> ratio(std::span<const std::byte> t, At at, bool apu) {
  const auto v = value(t, at);
  if (!v) return {};
  return within(static_cast<double>(*v) / (apu && *v > 100 ? 10000 : 100), 0, 1);
}
std::optional<double> scaled(std::span<const std::byte> t, At at, double unit, double max) {
  const auto v = value(t, at);
  if (!v) return {};
  return within(static_cast<double>(*v) * unit, 0, max);
}

}  // namespace

std::vector<std::string> throttle_reasons(uint64_t bits) {
  std::vector<std::string> out;
  if (bits & 0xffull) out.emplace_back("power");
  if (bits & 0xff0000ull) out.emplace_back("current");
  if (bits & 0xffff00000000ull) out.emplace_back("temperature");
  if (bits & ~(0xffull | 0xff0000ull | 0xffff00000000ull)) out.emplace_back("other");
  return out;
}

Result<GpuMetrics> parse_gpu_metrics(std::span<const std::byte> t) {
  if (t.size() < 4) return bad_input("[gpu_metrics] expected a header of 4 bytes, got {}", t.size());
  const int size = load_le<uint16_t>(t.data());
  GpuMetrics m;
  m.format = load_le<uint8_t>(t.data() + 2);
  m.content = load_le<uint8_t>(t.data() + 3);
  const auto* l = std::find_if(std::begin(kLayouts), std::end(kLayouts),
                               [&](const Layout& o) { return o.format == m.format && o.content == m.content; });
  if (l == std::end(kLayouts))
    return bad_input("[gpu_metrics] expected a table v1_0 to v1_8, v2_0 to v2_4 or v3_0, got v{}_{}", m.format,
                     m.content);
  if (t.size() < static_cast<size_t>(size) || size < l->size || (size > l->size && !l->open_ended))
    return bad_input("[gpu_metrics] expected {}{} bytes for v{}_{}, got a size of {} and {} bytes",
                     l->open_ended ? "at least " : "", l->size, m.format, m.content, size, t.size());
  t = t.first(static_cast<size_t>(size));
  const bool apu = m.format >= 2;
  m.edge_celsius = celsius(t, l->edge, apu);
  m.junction_celsius = celsius(t, l->junction, apu);
  m.memory_celsius = celsius(t, l->memory, apu);
  m.load = ratio(t, l->load, apu);
  m.memory_load = ratio(t, l->memory_load, apu);
  m.power_watts = scaled(t, l->power, l->watts, 10000);
  m.energy_joules = scaled(t, l->energy, 0x1p-16, 1e14);
  for (int i = 0; i < l->core_count; ++i) {
    const auto v = value(t, l->core, i);
    if (v && *v > 0 && *v < 20000) m.core_mhz = std::max(m.core_mhz.value_or(0), static_cast<double>(*v));
  }
  m.memory_mhz = within(scaled(t, l->memory_clock, 1, 20000), 1, 20000);
  m.fan_rpm = scaled(t, l->fan, 1, 50000);
  if (const auto w = value(t, l->width); w && *w >= 1 && *w <= 32) m.pcie_width = static_cast<int>(*w);
  if (const auto s = value(t, l->speed)) {
    // Version 1.0 has the generation (1 to 6) in its one byte where a tenth of a GT/s does not fit.
    constexpr double kGenerations[] = {2.5, 5, 8, 16, 32, 64};
    const bool generation = l->speed.width == 1 && *s >= 1 && *s <= 6;
    m.pcie_gts = within(generation ? kGenerations[*s - 1] : static_cast<double>(*s) / 10, 2.5, 128);
  }
  if (const auto bits = value(t, l->throttle_bits)) m.throttled = throttle_reasons(*bits);
  if (const auto status = value(t, l->throttle_status))
    m.throttled = *status ? std::vector<std::string>{"other"} : std::vector<std::string>{};
  ThrottleCounters counters;
  counters.ticks = value(t, l->ticks).value_or(0);
  for (const auto& h : l->held) {
    const auto v = value(t, h.at);
    if (!v) continue;
    const auto known = std::find_if(counters.held.begin(), counters.held.end(),
                                    [&](const auto& pair) { return pair.first == h.reason; });
    if (known == counters.held.end())
      counters.held.emplace_back(h.reason, *v);
    else
      known->second += *v;
  }
  if (!counters.held.empty()) m.throttle_counters = std::move(counters);
  return m;
}

}  // namespace danqing::monitor
