// amdgpu's gpu_metrics tables as the driver lays them out: fields in the order of kgd_pp_interface.h, offsets by the
// compiler. The parser has offsets of its own, so that one holds the other.
#pragma once
#include <cstdint>
#include <cstring>
#include <string>

namespace danqing::monitor::tables {

struct Header {
  uint16_t size;
  uint8_t format, content;
};
struct Clocks1 {
  uint16_t average[7], gfx, soc, u, v0, d0, v1, d1;
};
struct V1_0 {
  Header h;
  uint64_t clock;
  uint16_t edge, hotspot, mem, vrgfx, vrsoc, vrmem, gfx_activity, umc_activity, mm_activity, power;
  uint32_t energy;
  Clocks1 clocks;
  uint32_t throttle;
  uint16_t fan;
  uint8_t pcie_width, pcie_speed;
};
struct V1_1 {
  Header h;
  uint16_t edge, hotspot, mem, vrgfx, vrsoc, vrmem, gfx_activity, umc_activity, mm_activity, power;
  uint64_t energy, clock;
  Clocks1 clocks;
  uint32_t throttle;
  uint16_t fan, pcie_width, pcie_speed, padding;
  uint32_t gfx_acc, mem_acc;
  uint16_t hbm[4];
};
struct V1_2 : V1_1 {
  uint64_t firmware_time;
};
struct V1_3 : V1_2 {
  uint16_t volt_soc, volt_gfx, volt_mem, padding1;
  uint64_t throttle_bits;
};
struct V1_4 {
  Header h;
  uint16_t hotspot, mem, vrsoc, power, gfx_activity, umc_activity, vcn[4];
  uint64_t energy, clock;
  uint32_t throttle, lock;
  uint16_t pcie_width, pcie_speed, xgmi_width, xgmi_speed;
  uint32_t gfx_acc, mem_acc;
  uint64_t pcie_acc, pcie_inst, l0, replay, rover, xgmi_read[8], xgmi_write[8], firmware_time;
  uint16_t gfxclk[8], socclk[4], vclk[4], dclk[4], uclk, padding;
};
struct V1_5 {
  Header h;
  uint16_t hotspot, mem, vrsoc, power, gfx_activity, umc_activity, vcn[4], jpeg[32];
  uint64_t energy, clock;
  uint32_t throttle, lock;
  uint16_t pcie_width, pcie_speed, xgmi_width, xgmi_speed;
  uint32_t gfx_acc, mem_acc;
  uint64_t pcie_acc, pcie_inst, l0, replay, rover;
  uint32_t nak_sent, nak_received;
  uint64_t xgmi_read[8], xgmi_write[8], firmware_time;
  uint16_t gfxclk[8], socclk[4], vclk[4], dclk[4], uclk, padding;
};
struct Throttlers {
  uint32_t counter, prochot, ppt, socket, vr, hbm;
};
struct Links {
  uint32_t lock;
  uint16_t pcie_width, pcie_speed, xgmi_width, xgmi_speed;
  uint32_t gfx_acc, mem_acc;
};
struct Traffic {
  uint64_t pcie_acc, pcie_inst, l0, replay, rover;
  uint32_t nak_sent, nak_received;
  uint64_t xgmi_read[8], xgmi_write[8];
};
struct Tail {
  uint16_t gfxclk[8], socclk[4], vclk[4], dclk[4], uclk, partitions;
};
template <int kJpeg, int kCounters>
struct Partition {
  uint32_t busy[8];
  uint16_t jpeg[kJpeg], vcn[4];
  uint64_t counters[kCounters][8];
};
struct V1_6 {
  Header h;
  uint16_t hotspot, mem, vrsoc, power, gfx_activity, umc_activity;
  uint64_t energy, clock;
  Throttlers throttlers;
  Links links;
  Traffic traffic;
  uint64_t firmware_time;
  Tail tail;
  Partition<32, 1> partitions[8];
  uint32_t recovery;
};
template <int kJpeg, int kCounters>
struct V1_7_8 {
  Header h;
  uint16_t hotspot, mem, vrsoc, power, gfx_activity, umc_activity;
  uint64_t bandwidth, energy, clock;
  Throttlers throttlers;
  Links links;
  Traffic traffic;
  uint16_t xgmi_status[8], padding;
  uint64_t firmware_time;
  Tail tail;
  Partition<kJpeg, kCounters> partitions[8];
  uint32_t recovery;
};
using V1_7 = V1_7_8<32, 2>;
using V1_8 = V1_7_8<40, 5>;

struct Clocks2 {
  uint16_t average[6], gfx, soc, u, f, v, d, core[8], l3[2];
};
struct V2_0 {
  Header h;
  uint64_t clock;
  uint16_t gfx, soc, core[8], l3[2], gfx_activity, mm_activity, power, cpu, soc_power, gfx_power, core_power[8];
  Clocks2 clocks;
  uint32_t throttle;
  uint16_t fan, padding;
};
struct V2_1 {
  Header h;
  uint16_t gfx, soc, core[8], l3[2], gfx_activity, mm_activity;
  uint64_t clock;
  uint16_t power, cpu, soc_power, gfx_power, core_power[8];
  Clocks2 clocks;
  uint32_t throttle;
  uint16_t fan, padding[3];
};
struct V2_2 : V2_1 {
  uint64_t throttle_bits;
};
struct V2_3 : V2_2 {
  uint16_t average_gfx, average_soc, average_core[8], average_l3[2];
};
struct V2_4 : V2_3 {
  uint16_t volts[3], amperes[3];
};
struct V3_0 {
  Header h;
  uint16_t gfx, soc, core[16], skin, gfx_activity, vcn, ipu[8], c0[16], dram_reads, dram_writes, ipu_reads, ipu_writes;
  uint64_t clock;
  uint32_t power;
  uint16_t ipu_power;
  uint32_t apu, gfx_power, dgpu, all_core;
  uint16_t core_power[16], system, stapm, stapm_now;
  uint16_t gfxclk, socclk, vpeclk, ipuclk, fclk, vclk, uclk, mpipu;
  uint16_t coreclk[16], core_max, gfx_max;
  uint32_t prochot, spl, fppt, sppt, thm_core, thm_gfx, thm_soc, filter;
};

/// All ones, as the driver starts, with the header set.
template <class T>
T blank(int format, int content) {
  T t;
  std::memset(static_cast<void*>(&t), 0xff, sizeof t);
  t.h = {sizeof t, static_cast<uint8_t>(format), static_cast<uint8_t>(content)};
  return t;
}
template <class T>
std::string bytes(const T& t) {
  return {reinterpret_cast<const char*>(&t), sizeof t};
}

}  // namespace danqing::monitor::tables
