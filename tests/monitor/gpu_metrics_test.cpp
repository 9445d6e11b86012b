#include "monitor/gpu_metrics.h"

#include <gmock/gmock.h>

#include "monitor/tables.h"
#include "testing/testing.h"

namespace danqing::monitor {
namespace {

using namespace tables;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

static_assert(sizeof(V1_0) == 80 && sizeof(V1_1) == 96 && sizeof(V1_2) == 104 && sizeof(V1_3) == 120);
static_assert(sizeof(V1_4) == 288 && sizeof(V1_5) == 360 && sizeof(V1_6) == 1664 && sizeof(V1_7) == 2208);
static_assert(sizeof(V1_8) == 3872 && sizeof(V2_0) == 120 && sizeof(V2_1) == 120 && sizeof(V2_2) == 128);
static_assert(sizeof(V2_3) == 152 && sizeof(V2_4) == 168 && sizeof(V3_0) == 264);

Result<GpuMetrics> parse(const std::string& s) {
  return parse_gpu_metrics(std::as_bytes(std::span(s.data(), s.size())));
}

template <class T>
void set_card(T& t) {
  t.hotspot = 71, t.mem = 58, t.power = 305, t.gfx_activity = 87, t.umc_activity = 41;
}

template <class T>
void check_old_card(T t, double gts, uint16_t speed) {
  set_card(t);
  t.edge = 63, t.clocks.gfx = 2105, t.clocks.u = 1249, t.fan = 1450;
  t.pcie_width = 8, t.pcie_speed = static_cast<decltype(t.pcie_speed)>(speed);
  t.energy = 77;
  DQ_ASSERT_OK(const GpuMetrics m, parse(bytes(t)));
  EXPECT_EQ(m.edge_celsius, 63);
  EXPECT_EQ(m.junction_celsius, 71);
  EXPECT_EQ(m.memory_celsius, 58);
  EXPECT_EQ(m.load, 0.87);
  EXPECT_EQ(m.memory_load, 0.41);
  EXPECT_EQ(m.power_watts, 305);
  EXPECT_EQ(m.energy_joules, std::nullopt) << "its unit is not documented before 1.4";
  EXPECT_EQ(m.core_mhz, 2105);
  EXPECT_EQ(m.memory_mhz, 1249);
  EXPECT_EQ(m.fan_rpm, 1450);
  EXPECT_EQ(m.pcie_width, 8);
  EXPECT_EQ(m.pcie_gts, gts);
}

TEST(GpuMetrics, CardsBeforeInstinct300) {
  check_old_card(blank<V1_0>(1, 0), 16, 160);
  check_old_card(blank<V1_0>(1, 0), 16, 4);  // as a generation
  check_old_card(blank<V1_1>(1, 1), 16, 160);
  check_old_card(blank<V1_2>(1, 2), 8, 80);
  check_old_card(blank<V1_3>(1, 3), 32, 320);
}

TEST(GpuMetrics, InstinctWithThrottleStatus) {
  const auto check = [](auto t) {
    set_card(t);
    t.energy = 65536ull * 4321, t.throttle = 0, t.pcie_width = 16, t.pcie_speed = 320;
    t.gfxclk[0] = 1900, t.gfxclk[3] = 2100, t.uclk = 1300;  // the other dies have none
    DQ_ASSERT_OK(const GpuMetrics m, parse(bytes(t)));
    EXPECT_EQ(m.edge_celsius, std::nullopt);
    EXPECT_EQ(m.junction_celsius, 71);
    EXPECT_EQ(m.memory_celsius, 58);
    EXPECT_EQ(m.power_watts, 305);
    EXPECT_EQ(m.energy_joules, 4321);
    EXPECT_EQ(m.core_mhz, 2100) << "the fastest die";
    EXPECT_EQ(m.memory_mhz, 1300);
    EXPECT_EQ(m.pcie_width, 16);
    EXPECT_EQ(m.pcie_gts, 32);
    EXPECT_EQ(m.fan_rpm, std::nullopt);
    ASSERT_TRUE(m.throttled);
    EXPECT_THAT(*m.throttled, IsEmpty());
    t.throttle = 1;
    EXPECT_THAT(*parse(bytes(t))->throttled, ElementsAre("other"));
  };
  check(blank<V1_4>(1, 4));
  check(blank<V1_5>(1, 5));
}

TEST(GpuMetrics, InstinctWithCounters) {
  const auto check = [](auto t) {
    set_card(t);
    t.energy = 65536ull * 99, t.links.pcie_width = 16, t.links.pcie_speed = 320;
    t.throttlers = {1000, 1, 20, 300, 4000, 50000};
    t.tail.gfxclk[7] = 2099, t.tail.uclk = 1301;
    DQ_ASSERT_OK(const GpuMetrics m, parse(bytes(t)));
    EXPECT_EQ(m.junction_celsius, 71);
    EXPECT_EQ(m.load, 0.87);
    EXPECT_EQ(m.energy_joules, 99);
    EXPECT_EQ(m.core_mhz, 2099);
    EXPECT_EQ(m.memory_mhz, 1301);
    EXPECT_EQ(m.pcie_gts, 32);
    EXPECT_EQ(m.throttled, std::nullopt) << "counters alone do not say what is now";
    ASSERT_TRUE(m.throttle_counters);
    EXPECT_EQ(m.throttle_counters->ticks, 1000u);
    using Held = std::pair<std::string, uint64_t>;
    EXPECT_THAT(m.throttle_counters->held, ElementsAre(Held("temperature", 54301), Held("power", 20)));
  };
  check(blank<V1_6>(1, 6));
  check(blank<V1_7>(1, 7));
  check(blank<V1_8>(1, 8));
}

template <class T>
void check_apu(T t) {
  t.gfx = 5125, t.gfx_activity = 6400, t.clocks.gfx = 2600, t.clocks.u = 2800;
  DQ_ASSERT_OK(const GpuMetrics m, parse(bytes(t)));
  EXPECT_EQ(m.edge_celsius, 51.25);
  EXPECT_EQ(m.load, 0.64);
  EXPECT_EQ(m.core_mhz, 2600);
  EXPECT_EQ(m.memory_mhz, 2800);
  EXPECT_EQ(m.energy_joules, std::nullopt);
  t.gfx = 51, t.gfx_activity = 64;  // drivers that give whole ones
  EXPECT_EQ(parse(bytes(t))->edge_celsius, 51);
  EXPECT_EQ(parse(bytes(t))->load, 0.64);
}

TEST(GpuMetrics, Apus) {
  check_apu(blank<V2_0>(2, 0));
  check_apu(blank<V2_1>(2, 1));
  check_apu(blank<V2_2>(2, 2));
  check_apu(blank<V2_3>(2, 3));
  check_apu(blank<V2_4>(2, 4));
  auto t = blank<V2_4>(2, 4);
  t.power = 15500;
  EXPECT_EQ(parse(bytes(t))->power_watts, 15.5) << "milliwatts from 2.4 on";
  auto old = blank<V2_2>(2, 2);
  old.power = 15;
  EXPECT_EQ(parse(bytes(old))->power_watts, std::nullopt) << "a unit that depends on the chip";
  auto s = blank<V3_0>(3, 0);
  s.gfx = 4800, s.gfx_activity = 77, s.power = 54321, s.gfxclk = 2900, s.uclk = 1000;
  s.prochot = 1, s.spl = 2, s.fppt = 3, s.sppt = 4, s.thm_core = 5, s.thm_gfx = 6, s.thm_soc = 7;
  DQ_ASSERT_OK(const GpuMetrics m, parse(bytes(s)));
  EXPECT_EQ(m.edge_celsius, 48);
  EXPECT_EQ(m.load, 0.77);
  EXPECT_DOUBLE_EQ(*m.power_watts, 54.321);
  EXPECT_EQ(m.core_mhz, 2900);
  EXPECT_EQ(m.memory_mhz, 1000);
  using Held = std::pair<std::string, uint64_t>;
  EXPECT_THAT(m.throttle_counters->held, ElementsAre(Held("temperature", 19), Held("power", 9)));
}

TEST(GpuMetrics, ThrottleBits) {
  EXPECT_THAT(throttle_reasons(0), IsEmpty());
  EXPECT_THAT(throttle_reasons(1ull << 5), ElementsAre("power"));
  EXPECT_THAT(throttle_reasons(1ull << 22), ElementsAre("current"));
  EXPECT_THAT(throttle_reasons(1ull << 36 | 1ull << 0), ElementsAre("power", "temperature"));
  EXPECT_THAT(throttle_reasons(1ull << 57), ElementsAre("other"));
}

TEST(GpuMetrics, WhatTheFirmwareLeftOutIsAbsent) {
  DQ_ASSERT_OK(const GpuMetrics m, parse(bytes(blank<V1_3>(1, 3))));
  EXPECT_FALSE(m.edge_celsius || m.junction_celsius || m.memory_celsius || m.load || m.memory_load || m.power_watts);
  EXPECT_FALSE(m.core_mhz || m.memory_mhz || m.fan_rpm || m.pcie_gts || m.pcie_width || m.throttled);
  DQ_ASSERT_OK(const GpuMetrics n, parse(bytes(blank<V1_8>(1, 8))));
  EXPECT_FALSE(n.energy_joules || n.throttle_counters || n.core_mhz);
}

TEST(GpuMetrics, ImpossibleValuesAreAbsent) {
  auto t = blank<V1_3>(1, 3);
  t.edge = 5000, t.gfx_activity = 300, t.clocks.gfx = 60000, t.pcie_width = 99, t.pcie_speed = 1;
  DQ_ASSERT_OK(const GpuMetrics m, parse(bytes(t)));
  EXPECT_FALSE(m.edge_celsius || m.load || m.core_mhz || m.pcie_width || m.pcie_gts);
}

TEST(GpuMetrics, RefusesWrongSizesAndRevisions) {
  EXPECT_THAT(parse("").error().message, ::testing::HasSubstr("4 bytes, got 0"));
  EXPECT_THAT(parse("abc").error().message, ::testing::HasSubstr("got 3"));
  const std::string good = bytes(blank<V1_3>(1, 3));
  for (size_t n = 4; n < good.size(); ++n)
    EXPECT_THAT(parse(good.substr(0, n)).error().message, ::testing::HasSubstr("expected 120 bytes")) << n;
  EXPECT_TRUE(parse(good + "more than it says").ok());
  for (const uint16_t size : {0, 4, 119, 121, 65535}) {
    auto t = blank<V1_3>(1, 3);
    t.h.size = size;
    EXPECT_FALSE(parse(bytes(t)).ok()) << size;
  }
  for (int format = 0; format < 256; ++format)
    for (int content = 0; content < 256; ++content) {
      std::string s = good;
      s[2] = static_cast<char>(format), s[3] = static_cast<char>(content);
      // Two tables of APUs are as long.
      const bool known = (format == 1 && content == 3) || (format == 2 && content <= 1);
      EXPECT_EQ(parse(s).ok(), known) << format << " " << content;
    }
  EXPECT_THAT(parse(bytes(blank<V1_3>(1, 9))).error().message, ::testing::HasSubstr("got v1_9"));
}

}  // namespace
}  // namespace danqing::monitor
