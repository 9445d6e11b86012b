// Whole machines from their files: what is read, and that nothing in them can do harm.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include "monitor/sampler.h"
#include "monitor/tree.h"

namespace danqing::monitor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::vector<CardReading> cards(const Tree& t) { return read_cards({.root = t.root(), .nvml = {}}); }

TEST(Cards, EightInstincts) {
  Tree t;
  t.host();
  for (int n = 7; n >= 0; --n) t.instinct(n);
  t.write("sys/class/drm/card1-DP-1/status", "connected\n");  // a connector, no card
  t.write("sys/class/drm/renderD128/dev", "226:128\n");
  const auto all = cards(t);
  ASSERT_THAT(all, SizeIs(8));
  for (int n = 0; n < 8; ++n) {
    const CardReading& c = all[static_cast<size_t>(n)];
    EXPECT_EQ(c.id, "card" + std::to_string(n + 1));
    EXPECT_EQ(c.load, (90 + n) / 100.0);
    EXPECT_EQ(c.numa_node, n < 4 ? 0 : 1);
    EXPECT_EQ(c.gfx, "gfx942");
  }
  const CardReading& c = all[2];
  EXPECT_EQ(c.pci, "0000:2c:00.0");
  EXPECT_EQ(c.name, "AMD Instinct MI300X OAM");
  EXPECT_EQ(c.edge_celsius, std::nullopt);
  EXPECT_EQ(c.junction_celsius, 71);
  EXPECT_EQ(c.memory_celsius, 58);
  EXPECT_EQ(c.critical_celsius, 100);
  EXPECT_EQ(c.memory_load, 0.35);
  EXPECT_EQ(c.vram_total, 205822885888u);
  EXPECT_EQ(c.vram_used, 48318382080u);
  EXPECT_EQ(c.gtt_used, 12632064u);
  EXPECT_EQ(c.power_watts, 612);
  EXPECT_EQ(c.power_cap_watts, 750);
  EXPECT_EQ(c.energy_joules, 1000);
  EXPECT_EQ(c.core_mhz, 2100);
  EXPECT_EQ(c.memory_mhz, 1300);
  EXPECT_EQ(c.pcie_gts, 32);
  EXPECT_EQ(c.pcie_width, 16);
  EXPECT_EQ(c.fan_rpm, std::nullopt);
  EXPECT_THAT(c.notes, IsEmpty());
}

TEST(Cards, Radeon) {
  Tree t;
  t.radeon();
  const auto all = cards(t);
  ASSERT_THAT(all, SizeIs(1));
  const CardReading& c = all[0];
  EXPECT_EQ(c.name, "AMD Radeon RX 7900 XTX") << "by device and revision";
  EXPECT_EQ(c.gfx, "gfx1100");
  EXPECT_EQ(c.numa_node, std::nullopt) << "-1 is no node";
  EXPECT_EQ(c.edge_celsius, 44);
  EXPECT_EQ(c.junction_celsius, 49);
  EXPECT_EQ(c.memory_celsius, 54);
  EXPECT_EQ(c.critical_celsius, 110);
  EXPECT_EQ(c.load, 0.03);
  EXPECT_EQ(c.power_watts, 18);
  EXPECT_EQ(c.power_cap_watts, 339);
  EXPECT_EQ(c.core_mhz, 41) << "the starred line";
  EXPECT_EQ(c.memory_mhz, 96);
  EXPECT_EQ(c.fan_rpm, 0);
  EXPECT_EQ(c.fan_ratio, 0);
  EXPECT_EQ(c.visible_vram_total, 268435456u);
  EXPECT_EQ(c.pcie_gts, 2.5) << "the link to the host, not the one behind the card's switch";
  EXPECT_EQ(c.pcie_width, 8);
  EXPECT_EQ(c.pcie_max_gts, 16);
  ASSERT_TRUE(c.throttled);
  EXPECT_THAT(*c.throttled, IsEmpty());
  EXPECT_EQ(c.energy_joules, std::nullopt);
}

TEST(Cards, NameFromTheGeneralTable) {
  Tree t;
  t.radeon();
  t.remove("usr/share/libdrm");
  EXPECT_EQ(cards(t)[0].name, "AMD 1002:744c");
  t.write("usr/share/misc/pci.ids",
          "# x\n1001  Kolter\n\t744c  Not this\n1002  Advanced Micro Devices, Inc. [AMD/ATI]\n"
          "\t7448  Navi 31\n\t744c  Navi 31 [Radeon RX 7900 XT/7900 XTX]\n\t\t1002 0e3b  Board\n1003  ULSI\n");
  EXPECT_EQ(cards(t)[0].name, "AMD Navi 31 [Radeon RX 7900 XT/7900 XTX]");
  t.write("usr/share/misc/pci.ids", "# x\n1002  AMD\n\t7448  Navi\n1003  ULSI\n\t744c  Not this\n");
  EXPECT_EQ(cards(t)[0].name, "AMD 1002:744c") << "another vendor's device";
}

TEST(Cards, Apu) {
  Tree t;
  t.apu();
  const auto all = cards(t);
  ASSERT_THAT(all, SizeIs(1));
  const CardReading& c = all[0];
  EXPECT_EQ(c.edge_celsius, 51.25);
  EXPECT_EQ(c.load, 0.64);
  EXPECT_EQ(c.power_watts, 21);
  EXPECT_EQ(c.gtt_total, 16106127360u);
  EXPECT_EQ(c.core_mhz, 2600);
  EXPECT_EQ(c.gfx, "") << "KFD does not know it";
  EXPECT_THAT(*c.throttled, ElementsAre("temperature"));
}

TEST(Cards, NoCardAndNothingAtAll) {
  Tree t;
  EXPECT_THAT(cards(t), IsEmpty());
  const HostReading nothing = read_host({.root = t.root(), .nvml = {}});
  EXPECT_FALSE(nothing.memory_total || nothing.load1 || nothing.process_resident);
  EXPECT_THAT(nothing.nodes, IsEmpty());
  t.host();
  t.write("sys/class/drm/card0/device/vendor", "0x8086\n");  // Intel's
  EXPECT_THAT(cards(t), IsEmpty());
}

/// Every file of the tree with its text.
std::map<std::string, std::string> files(const Tree& t) {
  std::map<std::string, std::string> all;
  for (const auto& e : std::filesystem::recursive_directory_iterator(t.root())) {
    if (!e.is_regular_file()) continue;
    std::ifstream in(e.path(), std::ios::binary);
    all[std::filesystem::relative(e.path(), t.root()).string()] = {std::istreambuf_iterator<char>(in), {}};
  }
  return all;
}

TEST(Cards, EveryFileMayBeMissing) {
  Tree t;
  t.radeon();
  const auto all = files(t);
  ASSERT_GT(all.size(), 30u);
  for (const auto& [f, text] : all) {
    t.remove(f);
    EXPECT_THAT(cards(t), SizeIs(f == Tree::dev("card0") + "vendor" ? 0 : 1)) << f;
    t.write(f, text);
  }
  Tree bare;
  bare.write(Tree::dev("card0") + "vendor", "0x1002\n");
  ASSERT_THAT(cards(bare), SizeIs(1));
  const Json j = to_json(cards(bare)[0]);
  EXPECT_TRUE(j["power_watts"].is_null());
  EXPECT_EQ(j["name"], "AMD 1002:0000");
}

TEST(Cards, GarbageIsNotBelieved) {
  Tree t;
  t.radeon();
  const std::string garbage[] = {"",
                                 "\n",
                                 "nan\n",
                                 "-99999999999999999999\n",
                                 "1e400\n",
                                 "N/A\n",
                                 "0x\n",
                                 std::string(100000, '9'),
                                 std::string(5000, '\0'),
                                 "\x1b[2J\n",
                                 "\xff\xfe\xfd",
                                 ": *\n"};
  for (const auto& [f, text] : files(t)) {
    for (const std::string& g : garbage) {
      t.write(f, g);
      for (const CardReading& c : cards(t)) {
        const std::string j = dump_json(to_json(c));
        EXPECT_EQ(j.find('\x1b'), std::string::npos) << f;
        EXPECT_TRUE(!c.load || *c.load == 0.03) << f << " " << g.substr(0, 20);
        EXPECT_TRUE(!c.power_watts || *c.power_watts == 18) << f << " " << g.substr(0, 20);
        EXPECT_TRUE(!c.edge_celsius || *c.edge_celsius == 44) << f;
        EXPECT_TRUE(!c.vram_total || *c.vram_total == 25753026560u) << f;
      }
    }
    t.write(f, text);
  }
}

TEST(Cards, AHostileTableIsNotedAndTheRestStays) {
  Tree t;
  t.radeon();
  const std::string table = Tree::dev("card0") + "gpu_metrics";
  t.write(table, std::string("\xff\xff\x01\x03", 4) + std::string(60, 'x'));
  const CardReading c = cards(t).at(0);
  EXPECT_THAT(c.notes, ElementsAre(HasSubstr("[gpu_metrics] expected 120 bytes for v1_3, got a size of 65535")));
  EXPECT_EQ(c.power_watts, 18);
  EXPECT_EQ(c.pcie_width, 16);
  t.write(table, std::string(4 << 20, '\x01'));
  EXPECT_THAT(cards(t).at(0).notes, ElementsAre(HasSubstr("for v1_1, got a size of 257")));
}

TEST(Cards, PipesAndDirectoriesInPlaceOfFilesDoNotBlock) {
  Tree t;
  t.radeon();
  const std::string d = Tree::dev("card0");
  for (const char* f : {"gpu_busy_percent", "gpu_metrics", "mem_info_vram_used"}) {
    t.remove(d + f);
    ASSERT_EQ(mkfifo((t.root() / (d + f)).c_str(), 0600), 0);
  }
  t.remove(d + "mem_info_vram_total");
  std::filesystem::create_directory(t.root() / (d + "mem_info_vram_total"));
  const CardReading c = cards(t).at(0);
  EXPECT_FALSE(c.load || c.vram_used || c.vram_total);
  EXPECT_EQ(c.edge_celsius, 44);
}

TEST(Cards, GfxNames) {
  Tree t;
  for (const auto& [version, name] : std::map<std::string, std::string>{{"90010", "gfx90a"},
                                                                        {"110501", "gfx1151"},
                                                                        {"120001", "gfx1201"},
                                                                        {"0", ""},
                                                                        {"18446744073709551615", ""}}) {
    t.radeon();
    t.kfd(1, version, 0x300);
    EXPECT_EQ(cards(t).at(0).gfx, name);
  }
}

TEST(Host, MemoryLoadAndNodes) {
  Tree t;
  t.host();
  const HostReading h = read_host({.root = t.root(), .nvml = {}});
  EXPECT_EQ(h.memory_total, uint64_t{131072000} << 10);
  EXPECT_EQ(h.memory_available, uint64_t{98304000} << 10);
  EXPECT_EQ(h.swap_free, uint64_t{1048576} << 10);
  EXPECT_EQ(h.load1, 1.5);
  EXPECT_EQ(h.load15, 0.75);
  EXPECT_EQ(h.memory_limit, std::nullopt);
  ASSERT_THAT(h.nodes, SizeIs(2));
  EXPECT_EQ(h.nodes[1].cpus, "16-31");
  EXPECT_EQ(h.nodes[1].memory_total, uint64_t{65536000} << 10);
  EXPECT_EQ(h.nodes[1].memory_free, uint64_t{32768000} << 10);
  t.write("sys/fs/cgroup/memory.max", "34359738368\n");
  t.write("sys/fs/cgroup/memory.current", "1073741824\n");
  EXPECT_EQ(read_host({.root = t.root(), .nvml = {}}).memory_limit, uint64_t{32} << 30);
}

TEST(Sampler, LoadOfTheProcessorsAndThrottlingByCounters) {
  Tree t;
  t.host();
  t.instinct(0);
  Sampler sampler({.root = t.root(), .nvml = {}});
  const Snapshot first = sampler.sample();
  EXPECT_EQ(first.host.cpu_load, std::nullopt);
  EXPECT_EQ(first.cards.at(0).throttled, std::nullopt);
  t.write("proc/stat", "cpu  160 0 115 720 105 0 0 0 0 0\n");  // 75 more busy, 25 more idle
  Snapshot s = sampler.sample();
  EXPECT_EQ(s.host.cpu_load, 0.75);
  ASSERT_TRUE(s.cards.at(0).throttled);
  EXPECT_THAT(*s.cards[0].throttled, IsEmpty());
  t.instinct_table(0, 1100, 9);
  EXPECT_THAT(*sampler.sample().cards.at(0).throttled, ElementsAre("power"));
  t.instinct_table(0, 1, 0);  // the driver was loaded anew
  EXPECT_THAT(*sampler.sample().cards.at(0).throttled, IsEmpty());
}

TEST(EnergyMeter, ByTheCardsCounter) {
  Tree t;
  t.instinct(0);
  EnergyMeter by_id({.root = t.root(), .nvml = {}}, "card1"),
      by_address({.root = t.root(), .nvml = {}}, "0000:0c:00.0");
  t.instinct_table(0, 1250.5, 4);
  const auto used = by_id.stop();
  ASSERT_TRUE(used);
  EXPECT_TRUE(used->counted);
  EXPECT_DOUBLE_EQ(used->joules, 250.5);
  EXPECT_DOUBLE_EQ(by_address.stop()->joules, 250.5);
}

TEST(EnergyMeter, ByPowerOverTime) {
  Tree t;
  t.radeon();
  t.write(Tree::dev("card0") + "hwmon/hwmon2/power1_average", "200000000\n");
  const auto begin = std::chrono::steady_clock::now();
  EnergyMeter meter({.root = t.root(), .nvml = {}}, "card0");
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const auto used = meter.stop();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  ASSERT_TRUE(used);
  EXPECT_FALSE(used->counted);
  EXPECT_GE(used->joules, 200 * 0.29);
  EXPECT_LE(used->joules, 200 * seconds);
}

TEST(EnergyMeter, NothingWhereNothingIsKnown) {
  Tree t;
  t.radeon();
  EXPECT_FALSE(EnergyMeter({.root = t.root(), .nvml = {}}, "").stop());
  EXPECT_FALSE(EnergyMeter({.root = t.root(), .nvml = {}}, "card7").stop());
  t.remove(Tree::dev("card0") + "hwmon");
  t.remove(Tree::dev("card0") + "gpu_metrics");
  EXPECT_FALSE(EnergyMeter({.root = t.root(), .nvml = {}}, "card0").stop());
  t.instinct(0);
  EnergyMeter meter({.root = t.root(), .nvml = {}}, "card1");
  t.instinct_table(0, 3, 4);  // less than before
  EXPECT_FALSE(meter.stop());
}

TEST(Nvml, ACardThroughALibraryOfItsName) {
  Tree t;
  t.write("sys/bus/pci/devices/0000:1b:00.0/numa_node", "1\n");
  const auto all = read_cards({.root = t.root(), .nvml = DANQING_FAKE_NVML});
  ASSERT_THAT(all, SizeIs(1)) << "the second card of the library gives an error";
  const CardReading& c = all[0];
  EXPECT_EQ(c.id, "nvidia0");
  EXPECT_EQ(c.vendor, "nvidia");
  EXPECT_EQ(c.name, "NVIDIA Test");
  EXPECT_EQ(c.driver, "555.42");
  EXPECT_EQ(c.gfx, "sm_90");
  EXPECT_EQ(c.pci, "0000:1b:00.0");
  EXPECT_EQ(c.numa_node, 1);
  EXPECT_EQ(c.edge_celsius, 44);
  EXPECT_EQ(c.memory_celsius, 51);
  EXPECT_EQ(c.load, 0.62);
  EXPECT_EQ(c.memory_load, 0.3);
  EXPECT_EQ(c.vram_total, uint64_t{80} << 30);
  EXPECT_EQ(c.vram_used, uint64_t{5} << 30);
  EXPECT_EQ(c.power_watts, 345.678);
  EXPECT_EQ(c.power_cap_watts, 700);
  EXPECT_EQ(c.energy_joules, 123.456);
  EXPECT_EQ(c.core_mhz, 1980);
  EXPECT_EQ(c.memory_mhz, 2619);
  EXPECT_EQ(c.fan_ratio, std::nullopt) << "the library lacks the function";
  EXPECT_EQ(c.pcie_gts, 32);
  EXPECT_EQ(c.pcie_width, 16);
  EXPECT_THAT(*c.throttled, ElementsAre("power"));
}

TEST(Nvml, NoLibraryNoCard) {
  EXPECT_THAT(read_cards({.root = "/nonexistent", .nvml = "/nonexistent/libnvidia-ml.so.1"}), IsEmpty());
}

}  // namespace
}  // namespace danqing::monitor
