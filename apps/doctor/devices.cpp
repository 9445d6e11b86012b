// The cards as devices: what they can hold, how they are connected, whether they compute rightly, why they are slow.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "base/units.h"
#include "device/host.h"
#include "doctor/check.h"
#include "monitor/sysfs.h"

namespace danqing::doctor {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;
/// f16 products of numbers of size 1 are off by 5e-4 at most each and by much less in the mean; 2e-3 is a wrong kernel.
constexpr double kTolerance = 2e-3;

bool is_cpu(const DeviceProbe& d) { return d.info.backend == "CPU"; }

Check allocation(const Machine& m) {
  Check c{"allocation"};
  for (const DeviceProbe& d : m.devices) {
    if (is_cpu(d) || d.largest_buffer == 0) continue;
    const std::string part = fmt::format(
        "{}: {}", d.info.name, d.largest_buffer > uint64_t{1} << 50 ? "no limit" : format_bytes(d.largest_buffer));
    c.evidence.en += (c.evidence.en.empty() ? "largest buffer: " : ", ") + part;
    c.evidence.zh += (c.evidence.zh.empty() ? "单次分配上限：" : "，") + part;
    if (d.largest_buffer < kGiB) {
      c.status = Status::warning;
      c.remedy = {"Less than 1 GiB at a time: large pictures need tiles or another driver (RADV gives more).",
                  "单次不足 1 GiB：大图片需要分块，或换驱动（RADV 更大）。"};
    }
  }
  if (c.evidence.empty()) c.status = Status::skipped, c.evidence = {"no card in use", "没有使用显卡"};
  return c;
}

Check memory_map(const Machine& m) {
  Check c{"memory-map"};
  c.status = Status::skipped;
  for (const auto& card : m.cards) {
    if (!card.vram_total || card.vendor != "amd") continue;
    if (c.status == Status::skipped) c.status = Status::ok;
    const std::string visible = card.visible_vram_total ? format_bytes(*card.visible_vram_total) : "?";
    const std::string gtt = card.gtt_total ? format_bytes(*card.gtt_total) : "?";
    c.evidence.en +=
        fmt::format("{}{}: VRAM {}, of it visible to the host {}, GTT {}", c.evidence.en.empty() ? "" : "; ", card.id,
                    format_bytes(*card.vram_total), visible, gtt);
    c.evidence.zh += fmt::format("{}{}：VRAM {}，主机可见 {}，GTT {}", c.evidence.zh.empty() ? "" : "；", card.id,
                                 format_bytes(*card.vram_total), visible, gtt);
    if (card.visible_vram_total && *card.visible_vram_total < *card.vram_total) {
      c.status = Status::warning;
      c.remedy = {
          "Small BAR: weights go to the card through a window of 256 MiB. Switch on Above 4G Decoding and "
          "Resizable BAR (Smart Access Memory) in the BIOS.",
          "小 BAR：权重只能经 256 MiB 的窗口传到显卡。在 BIOS 中打开 Above 4G Decoding 和 Resizable BAR"
          "（Smart Access Memory）。"};
    } else if (*card.vram_total <= 4 * kGiB && card.gtt_total && m.host.memory_total &&
               *card.gtt_total < *m.host.memory_total * 6 / 10) {
      c.status = Status::warning;  // an APU: it computes in GTT
      c.remedy = {"This card computes in the host's memory, of which it may map " + gtt +
                      ". More: kernel parameter ttm.pages_limit (pages of 4 KiB) or amd-ttm --set GIB.",
                  "这块显卡在主机内存里计算，最多映射 " + gtt +
                      "。增大：内核参数 ttm.pages_limit（单位 4 KiB 页）或 amd-ttm --set。"};
    }
  }
  if (c.evidence.empty()) c.evidence = {"no card that says", "没有报告此项的显卡"};
  return c;
}

/// "0-3,8" holds one of `cpus`.
bool overlaps(const std::string& list, const std::vector<int>& cpus) {
  for (size_t at = 0; at < list.size();) {
    const size_t comma = std::min(list.find(',', at), list.size());
    int first = 0, last = 0;
    const std::string part = list.substr(at, comma - at);
    const int n = std::sscanf(part.c_str(), "%d-%d", &first, &last);
    if (n == 1) last = first;
    if (n >= 1 && std::any_of(cpus.begin(), cpus.end(), [&](int c) { return c >= first && c <= last; })) return true;
    at = comma + 1;
  }
  return false;
}

Check numa(const Machine& m) {
  Check c{"numa"};
  if (m.host.nodes.size() < 2) {
    c.status = Status::skipped;
    c.evidence = {"one memory node", "只有一个内存节点"};
    return c;
  }
  c.evidence = {fmt::format("{} memory nodes", m.host.nodes.size()), fmt::format("{} 个内存节点", m.host.nodes.size())};
  const std::vector<int> cpus = host::allowed_cpus();
  for (const auto& card : m.cards) {
    if (!card.numa_node) continue;
    c.evidence.en += fmt::format("; {} on node {}", card.id, *card.numa_node);
    c.evidence.zh += fmt::format("；{} 在节点 {}", card.id, *card.numa_node);
    for (const auto& node : m.host.nodes)
      if (node.id == *card.numa_node && !node.cpus.empty() && !overlaps(node.cpus, cpus)) {
        c.status = Status::warning;
        c.remedy = {fmt::format("This process may not run beside {}: numactl --cpunodebind={} --membind={} danqing ...",
                                card.id, node.id, node.id),
                    fmt::format("当前进程不能在 {} 所在节点运行：numactl --cpunodebind={} --membind={} danqing ...",
                                card.id, node.id, node.id)};
      }
  }
  return c;
}

std::vector<Check> compute(const Machine& m) {
  std::vector<Check> out;
  for (const DeviceProbe& d : m.devices) {
    Check c{"compute:" + d.info.name};
    if (!d.deviation) {
      c.status = Status::failed;
      c.evidence = {d.deviation.error().message, d.deviation.error().message};
      c.remedy = {"danqing doctor --explain - with the lines of sudo dmesg | grep -i -e amdgpu -e xid",
                  "把 sudo dmesg | grep -i -e amdgpu -e xid 的输出交给 danqing doctor --explain -"};
    } else {
      c.status = *d.deviation <= kTolerance ? Status::ok : Status::failed;
      c.evidence = {
          fmt::format("{}: a product of matrices is off by {:.1e} (at most {:.0e})", d.info.description, *d.deviation,
                      kTolerance),
          fmt::format("{}：矩阵乘积误差 {:.1e}（上限 {:.0e}）", d.info.description, *d.deviation, kTolerance)};
      if (c.status == Status::failed)
        c.remedy = {"The device computes wrongly. danqing verify DIR --device " + d.info.name +
                        " shows where; update its driver, unset HSA_OVERRIDE_GFX_VERSION.",
                    "设备计算有误。danqing verify DIR --device " + d.info.name +
                        " 可定位；更新驱动，取消 HSA_OVERRIDE_GFX_VERSION。"};
    }
    out.push_back(std::move(c));
  }
  return out;
}

/// 'Slow because': what keeps a good card from being used well.
Check speed(const Machine& m) {
  Check c{"speed"};
  std::vector<Text> because;
  const bool card_used = std::any_of(m.devices.begin(), m.devices.end(), [](const DeviceProbe& d) {
    return !is_cpu(d) && d.info.description.find("llvmpipe") == std::string::npos;
  });
  if (!m.cards.empty() && !m.devices.empty() && !card_used)
    because.push_back(
        {"slow because there is a card and this build does not use it (danqing --device list says why; "
         "-DDANQING_BACKENDS=vulkan builds a backend for it)",
         "慢的原因：有显卡但本程序没有使用（danqing --device list 说明原因；"
         "-DDANQING_BACKENDS=vulkan 编译相应后端）"});
  for (const auto& card : m.cards) {
    if (card.throttled && !card.throttled->empty())
      because.push_back({fmt::format("slow because {} is throttled by {}", card.id, card.throttled->front()),
                         fmt::format("慢的原因：{} 正被限制（{}）", card.id, card.throttled->front())});
    const bool busy = card.load.value_or(0) > 0.2;  // at rest cards slow their link down themselves
    if (card.pcie_width && card.pcie_max_width && *card.pcie_width * 2 < *card.pcie_max_width)
      because.push_back({fmt::format("weights stream slowly because {} has {} of {} PCIe lanes", card.id,
                                     *card.pcie_width, *card.pcie_max_width),
                         fmt::format("权重传输慢的原因：{} 只用了 {}/{} 条 PCIe 通道", card.id, *card.pcie_width,
                                     *card.pcie_max_width)});
    else if (busy && card.pcie_gts && card.pcie_max_gts && *card.pcie_gts < *card.pcie_max_gts)
      because.push_back({fmt::format("weights stream slowly because {}'s link runs at {:g} of {:g} GT/s under load",
                                     card.id, *card.pcie_gts, *card.pcie_max_gts),
                         fmt::format("权重传输慢的原因：{} 在负载下链路只有 {:g}/{:g} GT/s", card.id, *card.pcie_gts,
                                     *card.pcie_max_gts)});
    if (card.power_cap_watts && card.power_watts && *card.power_watts > 0.98 * *card.power_cap_watts)
      because.push_back({fmt::format("{} is at its power limit of {:.0f} W", card.id, *card.power_cap_watts),
                         fmt::format("{} 已达到功率上限 {:.0f} W", card.id, *card.power_cap_watts)});
  }
  if (because.empty()) {
    c.status = m.cards.empty() ? Status::skipped : Status::ok;
    c.evidence =
        m.cards.empty() ? Text{"no card", "没有显卡"} : Text{"nothing holds the cards back", "没有发现限制显卡的因素"};
    return c;
  }
  c.status = Status::warning;
  for (const Text& t : because) {
    c.evidence.en += (c.evidence.en.empty() ? "" : "; ") + t.en;
    c.evidence.zh += (c.evidence.zh.empty() ? "" : "；") + t.zh;
  }
  c.remedy = {
      "danqing monitor shows these numbers while a picture is drawn; danqing bench bandwidth measures the link.",
      "danqing monitor 在绘图时显示这些数值；danqing bench bandwidth 测量链路。"};
  return c;
}

/// A plan that gives something up although the card as a whole would do without: others hold its memory.
Check offload(const Machine& m) {
  Check c{"offload"};
  if (!m.plan) {
    c.status = Status::skipped;
    c.evidence = {"no model named (--model DIR)", "未指定模型（--model 目录）"};
    return c;
  }
  if (!*m.plan) {
    c.status = Status::failed;
    c.evidence = {m.plan->error().message, m.plan->error().message};
    c.remedy = {"A smaller --size, a quantised model (danqing convert --type q4_K), or --device cpu.",
                "减小 --size、用量化模型（danqing convert --type q4_K），或 --device cpu。"};
    return c;
  }
  const MemoryPlan& plan = m.plan->value();
  c.evidence = {fmt::format("{}x{} on {}: {}, {} at most", plan.width, plan.height, plan.device, plan.mode,
                            format_bytes(plan.device_peak)),
                fmt::format("{} 上 {}x{}：{}，最多 {}", plan.device, plan.width, plan.height, plan.mode,
                            format_bytes(plan.device_peak))};
  for (const DeviceProbe& d : m.devices) {
    if (d.info.name != plan.device || is_cpu(d) || plan.better.empty() || plan.better_needs == 0) continue;
    if (d.info.memory_total < plan.better_needs) continue;  // the card is too small: nothing to be had
    c.status = Status::warning;
    c.evidence.en +=
        fmt::format("; slow because {} of {} are free, and \"{}\" needs {}", format_bytes(d.info.memory_free),
                    format_bytes(d.info.memory_total), plan.better, format_bytes(plan.better_needs));
    c.evidence.zh += fmt::format("；慢的原因：{} 中只有 {} 空闲，而“{}”需要 {}", format_bytes(d.info.memory_total),
                                 format_bytes(d.info.memory_free), plan.better, format_bytes(plan.better_needs));
    c.remedy = {
        "Other programs hold the card's memory: danqing monitor shows how much; close them, or run the desktop on "
        "another card.",
        "别的程序占用了显存：danqing monitor 可查看用量；关闭它们，或让桌面使用另一块显卡。"};
  }
  return c;
}

}  // namespace

std::vector<Check> check_devices(const Machine& m) {
  std::vector<Check> out{allocation(m), memory_map(m), numa(m)};
  for (Check& c : compute(m)) out.push_back(std::move(c));
  out.push_back(speed(m));
  out.push_back(offload(m));
  return out;
}

}  // namespace danqing::doctor
