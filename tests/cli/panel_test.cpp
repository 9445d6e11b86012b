#include <gmock/gmock.h>

#include "monitor/tree.h"
#include "panel/text.h"

namespace danqing::app {
namespace {

using monitor::Snapshot;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string l; std::getline(in, l);) out.push_back(l);
  return out;
}
size_t columns(const std::string& s) {
  return static_cast<size_t>(std::count_if(s.begin(), s.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

Snapshot sample(const monitor::Tree& t) {
  monitor::Sampler s({.root = t.root(), .nvml = {}});
  Snapshot a = s.sample();
  a.host.cpu_load = 0.5;
  return a;
}

TEST(Panel, Graph) {
  EXPECT_EQ(graph({0, 13, 50, 87, 100, 200}, 100, 10, false), "_.+%##");
  EXPECT_EQ(graph({0, std::nullopt, 100}, 100, 10, true), "\u2581 \u2588");
  EXPECT_EQ(graph({1, 2, 3, 4}, 4, 2, false), "%#") << "the newest fit";
  EXPECT_EQ(graph({1, 2}, 0, 5, false), "  ");
  EXPECT_EQ(graph({}, 1, 5, false), "");
  EXPECT_EQ(graph({1}, 1, 0, false), "");
}

TEST(Panel, EverythingOnce) {
  monitor::Tree t;
  t.host();
  t.radeon();
  const std::string text = snapshot_text(sample(t), {});
  for (const char* part :
       {"card0", "AMD Radeon RX 7900 XTX", "gfx1100", "0000:03:00.0", "load 3 %", "VRAM 1.1/24.0 GiB",
        "GTT 0.0/62.5 GiB", "edge 44, junction 49, memory 54 (limit 110) \u00b0C", "18/339 W", "fan off",
        "core 41 MHz, memory 96 MHz", "PCIe 2.5 GT/s x8 (of 16 x16)", "not throttled", "cpu 50 %",
        "load 1.50 1.25 0.75", "memory 31.2/125.0 GiB", "node 1: cpus 16-31"})
    EXPECT_THAT(text, HasSubstr(part));
  EXPECT_THAT(snapshot_text(sample(t), {.unicode = false}), Not(HasSubstr("\u00b0")));
  monitor::Tree none;
  EXPECT_THAT(snapshot_text(sample(none), {}), HasSubstr("no card found"));
}

TEST(Panel, FitsWhateverTheWindow) {
  monitor::Tree t;
  t.host();
  for (int i = 0; i < 8; ++i) t.instinct(i);
  const std::deque<Snapshot> history(50, sample(t));
  for (const int width : {1, 10, 40, 80, 300})
    for (const int height : {1, 2, 10, 24, 60, 200}) {
      const auto all = lines(panel_text(history, {width, height, false, true}));
      EXPECT_LE(all.size(), static_cast<size_t>(std::max(0, height - 1))) << width << "x" << height;
      for (const std::string& l : all) EXPECT_LE(columns(l), static_cast<size_t>(width)) << l;
    }
  const std::string roomy = panel_text(history, {100, 200, false, true});
  for (const char* curve : {"  load    90 % ", "  VRAM    23 % ", "  temp    71 C ", "  power  612 W "})
    EXPECT_THAT(roomy, HasSubstr(curve));
  EXPECT_EQ(panel_text({}, {}), "");
}

TEST(Panel, ThrottlingIsRed) {
  monitor::Tree t;
  t.apu();
  const std::deque<Snapshot> history(1, sample(t));
  EXPECT_THAT(panel_text(history, {80, 40, true, true}), HasSubstr("\x1b[31m  THROTTLED by temperature"));
  EXPECT_THAT(panel_text(history, {80, 40, false, true}), Not(HasSubstr("\x1b")));
}

TEST(Panel, LinesForALog) {
  monitor::Tree t;
  t.host();
  t.radeon();
  const auto all = lines(snapshot_lines(sample(t), false));
  ASSERT_EQ(all.size(), 2u);
  EXPECT_THAT(all[0], HasSubstr(" host cpu 50 %"));
  EXPECT_THAT(
      all[1],
      HasSubstr(" card0  load 3 %  VRAM 1.1/24.0 GiB  edge 44, junction 49, memory 54 (limit 110) C  18/339 W"));
}

}  // namespace
}  // namespace danqing::app
