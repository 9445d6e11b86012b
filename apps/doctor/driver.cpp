// The kernel's driver and the right to use it.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <sstream>

#include "doctor/check.h"
#include "monitor/sysfs.h"

namespace danqing::doctor {
namespace {

namespace fs = std::filesystem;
using monitor::read_bytes;
using monitor::read_line;

struct PciCard {
  std::string address, driver;
};

/// AMD's display controllers and accelerators, whether a driver took them or not.
std::vector<PciCard> amd_pci_cards(const Machine& m) {
  std::vector<PciCard> found;
  std::error_code ec;
  const fs::path devices = m.root / "sys/bus/pci/devices";
  for (fs::directory_iterator it(devices, ec), end; !ec && it != end; it.increment(ec)) {
    const std::string vendor = read_line(it->path() / "vendor").value_or(""),
                      kind = read_line(it->path() / "class").value_or("");
    const bool card = kind.rfind("0x03", 0) == 0 || kind.rfind("0x12", 0) == 0;  // display, processing accelerator
    if (vendor != "0x1002" || !card) continue;
    std::error_code link;
    found.push_back(
        {it->path().filename().string(), fs::read_symlink(it->path() / "driver", link).filename().string()});
  }
  std::sort(found.begin(), found.end(), [](const PciCard& a, const PciCard& b) { return a.address < b.address; });
  return found;
}

bool under_wsl(const Machine& m) {
  std::string release = read_line(m.root / "proc/sys/kernel/osrelease").value_or("");
  std::transform(release.begin(), release.end(), release.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return release.find("microsoft") != std::string::npos;
}

bool has_amd(const Machine& m) {
  return !amd_pci_cards(m).empty() ||
         std::any_of(m.cards.begin(), m.cards.end(), [](const auto& c) { return c.vendor == "amd"; });
}

Check amdgpu(const Machine& m) {
  Check c{"amdgpu"};
  const auto cards = amd_pci_cards(m);
  std::error_code ec;
  const bool loaded = fs::exists(m.root / "sys/module/amdgpu", ec);
  const std::string kernel = read_line(m.root / "proc/sys/kernel/osrelease").value_or("?");
  const std::string version = read_line(m.root / "sys/module/amdgpu/version").value_or("");
  if (!has_amd(m)) {
    c.status = Status::skipped;
    c.evidence = {"no AMD card on the PCI bus", "PCI 总线上没有 AMD 显卡"};
    return c;
  }
  for (const PciCard& p : cards)
    if (p.driver != "amdgpu") {
      c.status = Status::failed;
      c.evidence = {fmt::format("{}: driver {}, kernel {}", p.address, p.driver.empty() ? "none" : p.driver, kernel),
                    fmt::format("{}：驱动 {}，内核 {}", p.address, p.driver.empty() ? "无" : p.driver, kernel)};
      c.remedy = {
          "sudo modprobe amdgpu; sudo dmesg | grep -i amdgpu. Missing firmware: package firmware-amd-graphics or "
          "linux-firmware. A card given to a virtual machine has vfio-pci instead.",
          "sudo modprobe amdgpu；sudo dmesg | grep -i amdgpu。缺少固件时安装 firmware-amd-graphics 或 "
          "linux-firmware。直通给虚拟机的显卡驱动是 vfio-pci。"};
      return c;
    }
  c.status = loaded || !cards.empty() || !m.cards.empty() ? Status::ok : Status::failed;
  c.evidence = {fmt::format("amdgpu {} on kernel {}", version.empty() ? "of the kernel" : version, kernel),
                fmt::format("amdgpu {}，内核 {}", version.empty() ? "（内核自带）" : version, kernel)};
  return c;
}

Check kfd(const Machine& m) {
  Check c{"kfd"};
  if (!has_amd(m)) return c.status = Status::skipped, c.evidence = {"no AMD card", "没有 AMD 显卡"}, c;
  struct stat info {};
  if (::stat((m.root / "dev/kfd").c_str(), &info) == 0) {
    const auto nodes = monitor::numbered(m.root / "sys/class/kfd/kfd/topology/nodes", "");
    c.evidence = {fmt::format("/dev/kfd is there, {} nodes", nodes.size()),
                  fmt::format("有 /dev/kfd，{} 个节点", nodes.size())};
    return c;
  }
  c.status = Status::warning;
  c.evidence = {"/dev/kfd is missing: no ROCm; Vulkan does without it", "没有 /dev/kfd：不能用 ROCm；Vulkan 不需要它"};
  c.remedy = under_wsl(m) ? Text{"WSL2 has none: see the check wsl", "WSL2 下本来就没有：见 wsl"}
                          : Text{"sudo dmesg | grep -i kfd names the reason. In a container: --device /dev/kfd.",
                                 "sudo dmesg | grep -i kfd 会说明原因。容器里：--device /dev/kfd。"};
  return c;
}

/// The group's name by /etc/group, or only its number.
std::string group_name(const Machine& m, unsigned gid, bool& known) {
  std::istringstream in(read_bytes(m.root / "etc/group", 1 << 20).value_or(""));
  for (std::string line; std::getline(in, line);) {
    const size_t a = line.find(':'), b = a == std::string::npos ? a : line.find(':', a + 1);
    if (b == std::string::npos) continue;
    if (line.substr(b + 1, line.find(':', b + 1) - b - 1) == std::to_string(gid))
      return known = true, line.substr(0, a);
  }
  return known = false, std::to_string(gid);
}

bool may_use(const Machine& m, const fs::path& file, const struct stat& info) {
  if (!m.identity) return ::access(file.c_str(), R_OK | W_OK) == 0;
  const auto& who = *m.identity;
  if (who.user == 0) return true;
  const unsigned mode = info.st_mode;
  if (info.st_uid == who.user) return (mode & 0600) == 0600;
  if (std::count(who.groups.begin(), who.groups.end(), info.st_gid) > 0) return (mode & 0060) == 0060;
  return (mode & 0006) == 0006;
}

std::string numbers(const std::vector<unsigned>& list) {
  std::string out;
  for (const unsigned n : list) out += (out.empty() ? "" : ",") + std::to_string(n);
  return out;
}

Machine::Identity identity_of(const Machine& m) {
  if (m.identity) return *m.identity;
  Machine::Identity me{geteuid(), {}};
  gid_t groups[256];
  const int n = getgroups(256, groups);
  me.groups.assign(groups, groups + std::max(0, n));
  if (std::count(me.groups.begin(), me.groups.end(), getegid()) == 0) me.groups.push_back(getegid());
  return me;
}

Check access(const Machine& m, const std::string& id, const std::vector<fs::path>& files, const char* what) {
  Check c{id};
  if (files.empty()) {
    c.status = Status::skipped;
    c.evidence = {fmt::format("no {}", what), fmt::format("没有 {}", what)};
    return c;
  }
  for (const fs::path& file : files) {
    struct stat info {};
    if (::stat(file.c_str(), &info) != 0) continue;
    bool known = false;
    const std::string group = group_name(m, info.st_gid, known);
    const std::string shown = "/" + fs::relative(file, m.root).string();
    const auto me = identity_of(m);
    const std::string facts_en = fmt::format("{}: group {} ({}), mode {:04o}; this process: user {}, groups {}", shown,
                                             group, info.st_gid, info.st_mode & 07777, me.user, numbers(me.groups));
    const std::string facts_zh = fmt::format("{}：组 {}（{}），权限 {:04o}；当前进程：用户 {}，组 {}", shown, group,
                                             info.st_gid, info.st_mode & 07777, me.user, numbers(me.groups));
    if (may_use(m, file, info)) {
      if (c.evidence.empty()) c.evidence = {facts_en, facts_zh};
      continue;
    }
    c.status = Status::failed;
    c.evidence = {facts_en, facts_zh};
    c.remedy = known
                   ? Text{fmt::format("sudo usermod -aG {} $USER, then log out and in again. In a container: "
                                      "--group-add {} (the number; names may differ inside).",
                                      group, info.st_gid),
                          fmt::format("sudo usermod -aG {} $USER，然后注销并重新登录。容器里：--group-add {}（用数字，"
                                      "容器内组名可能不同）。",
                                      group, info.st_gid)}
                   : Text{fmt::format("The group {} has no name here, as in a container: start it with --group-add {}.",
                                      info.st_gid, info.st_gid),
                          fmt::format("组 {} 在这里没有名字（容器里常见）：启动容器时加 --group-add {}。", info.st_gid,
                                      info.st_gid)};
    return c;
  }
  return c;
}

Check wsl(const Machine& m) {
  Check c{"wsl"};
  if (!under_wsl(m)) {
    c.status = Status::skipped;
    c.evidence = {"not under WSL", "不在 WSL 中"};
    return c;
  }
  std::error_code ec;
  const bool dxg = fs::exists(m.root / "dev/dxg", ec);
  const std::string detection = m.variable("HSA_ENABLE_DXG_DETECTION");
  c.evidence = {fmt::format("WSL2, /dev/dxg {}, HSA_ENABLE_DXG_DETECTION={}", dxg ? "is there" : "is missing",
                            detection.empty() ? "(unset)" : detection),
                fmt::format("WSL2，{} /dev/dxg，HSA_ENABLE_DXG_DETECTION={}", dxg ? "有" : "没有",
                            detection.empty() ? "（未设置）" : detection)};
  c.status = !dxg ? Status::failed : detection == "1" ? Status::ok : Status::warning;
  if (!dxg)
    c.remedy = {"In Windows: wsl --update, install an Adrenalin driver that names WSL2, wsl --shutdown.",
                "在 Windows 中：wsl --update，安装支持 WSL2 的 Adrenalin 驱动，wsl --shutdown。"};
  else if (detection != "1")
    c.remedy = {"ROCm before 7.13 needs export HSA_ENABLE_DXG_DETECTION=1.",
                "7.13 之前的 ROCm 需要 export HSA_ENABLE_DXG_DETECTION=1。"};
  return c;
}

}  // namespace

std::vector<Check> check_driver(const Machine& m) {
  std::vector<fs::path> kfd_files, render;
  std::error_code ec;
  if (fs::exists(m.root / "dev/kfd", ec)) kfd_files.push_back(m.root / "dev/kfd");
  for (const std::string& n : monitor::numbered(m.root / "dev/dri", "renderD"))
    render.push_back(m.root / "dev/dri" / n);
  return {amdgpu(m), kfd(m), access(m, "kfd-access", kfd_files, "/dev/kfd"),
          access(m, "dri-access", render, "/dev/dri/renderD*"), wsl(m)};
}

}  // namespace danqing::doctor
