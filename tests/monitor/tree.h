// sysfs and proc of machines with cards, as recorded ones look, written into a temporary directory.
#pragma once
#include <filesystem>
#include <fstream>
#include <string>

#include "monitor/tables.h"
#include "testing/testing.h"

namespace danqing::monitor {

class Tree {
 public:
  const std::filesystem::path& root() const { return dir_.path(); }
  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path p = dir_.path() / path;
    std::filesystem::create_directories(p.parent_path());
    std::ofstream(p, std::ios::binary) << text;
  }
  void remove(const std::string& path) const { std::filesystem::remove_all(dir_.path() / path); }

  /// A machine without a card: two memory nodes of 64 GiB.
  void host() const {
    write("proc/meminfo",
          "MemTotal:       131072000 kB\nMemFree:        60000000 kB\nMemAvailable:   98304000 kB\n"
          "SwapTotal:       2097152 kB\nSwapFree:        1048576 kB\n");
    write("proc/loadavg", "1.50 1.25 0.75 2/800 12345\n");
    write("proc/stat", "cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 1 1 1 1\n");
    write("proc/self/statm", "1000 500 1 1 1 1 1\n");
    for (int n : {0, 1}) {
      const std::string node = std::to_string(n), dir = "sys/devices/system/node/node" + node + "/";
      write(dir + "cpulist", n == 0 ? "0-15\n" : "16-31\n");
      write(dir + "meminfo",
            "Node " + node + " MemTotal:       65536000 kB\nNode " + node + " MemFree:        32768000 kB\n");
    }
  }
  void pci(const std::string& card, const std::string& address, const std::string& device,
           const std::string& revision) const {
    const std::string d = dev(card);
    write(d + "vendor", "0x1002\n");
    write(d + "device", device + "\n");
    write(d + "revision", revision + "\n");
    write(d + "uevent", "DRIVER=amdgpu\nPCI_CLASS=38000\nPCI_SLOT_NAME=" + address + "\nMODALIAS=pci:v00001002\n");
  }
  void kfd(int node, const std::string& gfx, unsigned location, unsigned domain = 0) const {
    write("sys/class/kfd/kfd/topology/nodes/" + std::to_string(node) + "/properties",
          "cpu_cores_count 0\nsimd_count 304\ngfx_target_version " + gfx + "\nvendor_id 4098\nlocation_id " +
              std::to_string(location) + "\ndomain " + std::to_string(domain) + "\n");
  }
  static std::string dev(const std::string& card) { return "sys/class/drm/" + card + "/device/"; }

  /// MI300X number n of a machine with eight: busy, on its node, with a v1_6 table.
  void instinct(int n) const {
    const std::string card = "card" + std::to_string(n + 1), d = dev(card),
                      h = d + "hwmon/hwmon" + std::to_string(n + 4) + "/";
    const int bus = 0x0c + 0x10 * n;
    char address[16];
    std::snprintf(address, sizeof address, "0000:%02x:00.0", bus);
    pci(card, address, "0x74a1", "0x00");
    kfd(n + 2, "90402", static_cast<unsigned>(bus) << 8);
    write(d + "product_name", "AMD Instinct MI300X OAM\n");
    write(d + "numa_node", n < 4 ? "0\n" : "1\n");
    write(d + "gpu_busy_percent", std::to_string(90 + n) + "\n");
    write(d + "mem_busy_percent", "35\n");
    write(d + "mem_info_vram_total", "205822885888\n");
    write(d + "mem_info_vram_used", "48318382080\n");
    write(d + "mem_info_vis_vram_total", "205822885888\n");
    write(d + "mem_info_gtt_total", "811298263040\n");
    write(d + "mem_info_gtt_used", "12632064\n");
    write(d + "current_link_speed", "32.0 GT/s PCIe\n");
    write(d + "max_link_speed", "32.0 GT/s PCIe\n");
    write(d + "current_link_width", "16\n");
    write(d + "max_link_width", "16\n");
    write(h + "name", "amdgpu\n");
    write(h + "temp2_label", "junction\n");
    write(h + "temp2_input", "71000\n");
    write(h + "temp2_crit", "100000\n");
    write(h + "temp3_label", "mem\n");
    write(h + "temp3_input", "58000\n");
    write(h + "temp3_crit", "105000\n");
    write(h + "power1_label", "PPT\n");
    write(h + "power1_input", "612000000\n");
    write(h + "power1_cap", "750000000\n");
    write(h + "freq1_label", "sclk\n");
    write(h + "freq1_input", "2100000000\n");
    write(h + "freq2_label", "mclk\n");
    write(h + "freq2_input", "1300000000\n");
    instinct_table(n, 1000, 4);
  }
  void instinct_table(int n, double joules, uint32_t power_ticks) const {
    auto t = tables::blank<tables::V1_6>(1, 6);
    t.hotspot = 71, t.mem = 58, t.power = 612, t.gfx_activity = 90, t.umc_activity = 35;
    t.energy = static_cast<uint64_t>(joules * 65536);
    t.throttlers = {100000, 0, power_ticks, 0, 0, 0};
    t.links.pcie_width = 16, t.links.pcie_speed = 320;
    for (uint16_t& c : t.tail.gfxclk) c = 2100;
    t.tail.uclk = 1300;
    write(dev("card" + std::to_string(n + 1)) + "gpu_metrics", tables::bytes(t));
  }

  /// RX 7900 XTX: fan off at idle, behind the switch that every such card has.
  void radeon() const {
    const std::string d = dev("card0"), h = d + "hwmon/hwmon2/";
    pci("card0", "0000:03:00.0", "0x744c", "0xc8");
    kfd(1, "110000", 0x300);
    write("usr/share/libdrm/amdgpu.ids",
          "# List of AMDGPU IDs\n1.0.0\n744C,\tC8,\tAMD Radeon RX 7900 XTX\n744C,\tCC,\tAMD Radeon RX 7900 XT\n");
    write(d + "numa_node", "-1\n");
    write(d + "gpu_busy_percent", "3\n");
    write(d + "mem_busy_percent", "0\n");
    write(d + "mem_info_vram_total", "25753026560\n");
    write(d + "mem_info_vram_used", "1204338688\n");
    write(d + "mem_info_vis_vram_total", "268435456\n");
    write(d + "mem_info_gtt_total", "67108864000\n");
    write(d + "mem_info_gtt_used", "52428800\n");
    write(d + "current_link_speed", "16.0 GT/s PCIe\n");
    write(d + "max_link_speed", "16.0 GT/s PCIe\n");
    write(d + "current_link_width", "16\n");
    write(d + "max_link_width", "16\n");
    write(d + "pp_dpm_sclk", "0: 500Mhz\n1: 41Mhz *\n2: 2526Mhz\n");
    write(d + "pp_dpm_mclk", "0: 96Mhz *\n1: 456Mhz\n2: 772Mhz\n3: 1249Mhz\n");
    write(h + "name", "amdgpu\n");
    const char* labels[] = {"edge", "junction", "mem"};
    for (int i = 0; i < 3; ++i) {
      const std::string t = h + "temp" + std::to_string(i + 1);
      write(t + "_label", std::string(labels[i]) + "\n");
      write(t + "_input", std::to_string(44000 + 5000 * i) + "\n");
      write(t + "_crit", i == 1 ? "110000\n" : "100000\n");
    }
    write(h + "power1_average", "18000000\n");
    write(h + "power1_cap", "339000000\n");
    write(h + "fan1_input", "0\n");
    write(h + "pwm1", "0\n");
    write(h + "pwm1_max", "255\n");
    auto t = tables::blank<tables::V1_3>(1, 3);
    t.edge = 44, t.hotspot = 49, t.mem = 54, t.power = 18, t.energy = 123456789;
    t.pcie_width = 8, t.pcie_speed = 25;
    t.throttle_bits = 0;
    write(d + "gpu_metrics", tables::bytes(t));
  }

  /// A Ryzen with its own graphics: little of its own memory, temperatures and load in hundredths.
  void apu() const {
    const std::string d = dev("card1"), h = d + "hwmon/hwmon5/";
    pci("card1", "0000:c4:00.0", "0x1900", "0xd1");
    write(d + "mem_info_vram_total", "536870912\n");
    write(d + "mem_info_vram_used", "314572800\n");
    write(d + "mem_info_gtt_total", "16106127360\n");
    write(d + "mem_info_gtt_used", "2147483648\n");
    write(h + "name", "amdgpu\n");
    write(h + "power1_input", "21000000\n");
    auto t = tables::blank<tables::V2_3>(2, 3);
    t.gfx = 5125, t.gfx_activity = 6400, t.clocks.gfx = 2600, t.clocks.u = 2800, t.power = 21,
    t.throttle_bits = 1ull << 36;
    write(d + "gpu_metrics", tables::bytes(t));
  }

 private:
  danqing::testing::TempDir dir_;
};

}  // namespace danqing::monitor
