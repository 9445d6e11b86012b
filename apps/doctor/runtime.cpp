// The libraries between the driver and this program: ROCm, Vulkan, and the kernels in this build.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <set>
#include <sstream>

#include "base/text.h"
#include "device/gfx.h"
#include "doctor/check.h"
#include "monitor/sysfs.h"

namespace danqing::doctor {
namespace {

namespace fs = std::filesystem;
using monitor::read_bytes;
using monitor::read_line;

bool has_amd(const Machine& m) {
  return std::any_of(m.cards.begin(), m.cards.end(), [](const auto& c) { return c.vendor == "amd"; });
}

std::vector<std::string> names(const fs::path& directory) {
  std::vector<std::string> out;
  std::error_code ec;
  for (fs::directory_iterator it(directory, ec), end; !ec && it != end; it.increment(ec))
    out.push_back(it->path().filename().string());
  std::sort(out.begin(), out.end());
  return out;
}

/// Directories in which the loader looks: ld.so.conf and what it includes, LD_LIBRARY_PATH, the usual ones, and every
/// /opt/rocm*.
std::vector<std::string> library_directories(const Machine& m) {
  std::vector<std::string> out;
  const auto add_lines = [&](const fs::path& file) {
    std::istringstream in(read_bytes(file, 1 << 16).value_or(""));
    for (std::string line; std::getline(in, line);) {
      line = line.substr(0, line.find('#'));
      const size_t begin = line.find_first_not_of(" \t\r");
      if (begin != std::string::npos && line[begin] == '/')
        out.push_back(line.substr(begin, line.find_last_not_of(" \t\r") - begin + 1));
    }
  };
  std::istringstream path(m.variable("LD_LIBRARY_PATH"));
  for (std::string part; std::getline(path, part, ':');)
    if (!part.empty()) out.push_back(part);
  add_lines(m.root / "etc/ld.so.conf");
  for (const std::string& n : names(m.root / "etc/ld.so.conf.d")) add_lines(m.root / "etc/ld.so.conf.d" / n);
  for (const char* usual :
       {"/usr/lib/x86_64-linux-gnu", "/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib"})
    out.emplace_back(usual);
  for (const std::string& n : names(m.root / "opt"))
    if (n.rfind("rocm", 0) == 0) out.push_back("/opt/" + n + "/lib");
  return out;
}

Check rocm(const Machine& m) {
  Check c{"rocm"};
  std::set<std::string> found, versions;
  bool searched = false;  // whether the loader would find the first library without help
  const auto dirs = library_directories(m);
  for (const std::string& dir : dirs)
    for (const std::string& n : names(m.root / fs::path(dir).relative_path()))
      for (const char* library : {"libamdhip64.so.", "libhsa-runtime64.so.", "librocblas.so."})
        if (n.rfind(library, 0) == 0 &&
            n.find_first_not_of("0123456789", std::string_view(library).size()) == std::string::npos) {
          found.insert(n);
          searched |= dir.rfind("/opt/rocm", 0) != 0 || std::count(dirs.begin(), dirs.end(), dir) > 1;
        }
  for (const std::string& n : names(m.root / "opt"))
    if (n.rfind("rocm", 0) == 0)
      if (const auto v = read_line(m.root / "opt" / n / ".info/version")) versions.insert(one_line(*v, 40));
  std::string list, version;
  for (const std::string& n : found) list += (list.empty() ? "" : " ") + n;
  for (const std::string& v : versions) version += (version.empty() ? "" : ", ") + v;
  if (found.empty()) {
    const bool needed = !m.hip_library.empty();
    c.status = needed && has_amd(m) ? Status::failed : Status::skipped;
    c.evidence = needed ? Text{"no ROCm library found; this build has the HIP backend",
                               "找不到 ROCm 的库，而本程序带有 HIP 后端"}
                        : Text{"no ROCm library found; this build does without", "找不到 ROCm 的库；本程序不需要"};
    if (c.status == Status::failed)
      c.remedy = {"Install ROCm's runtime (package rocm-hip-runtime, Debian: libamdhip64-5), or use --device vulkan0.",
                  "安装 ROCm 运行库（软件包 rocm-hip-runtime，Debian：libamdhip64-5），或用 --device vulkan0。"};
    return c;
  }
  c.evidence = {fmt::format("{}; version {}", list, version.empty() ? "not said" : version),
                fmt::format("{}；版本 {}", list, version.empty() ? "未知" : version)};
  if (versions.size() > 1) {
    c.status = Status::warning;
    c.remedy = {"Several ROCm versions: libraries of two of them in one process end with 'undefined symbol'. Keep one.",
                "装了多个 ROCm 版本：同一进程混用会报 undefined symbol。请只保留一个。"};
  } else if (!searched) {
    c.status = Status::warning;
    c.remedy = {
        "The loader does not search there: echo /opt/rocm/lib | sudo tee /etc/ld.so.conf.d/rocm.conf && sudo ldconfig",
        "加载器不搜索该目录：echo /opt/rocm/lib | sudo tee /etc/ld.so.conf.d/rocm.conf && sudo ldconfig"};
  }
  return c;
}

std::string joined(const std::vector<std::string>& list) {
  std::string out;
  for (const std::string& s : list) out += (out.empty() ? "" : " ") + s;
  return out;
}

Check gfx_target(const Machine& m) {
  Check c{"gfx-target"};
  if (m.hip_library.empty() || !has_amd(m)) {
    c.status = Status::skipped;
    c.evidence = m.hip_library.empty() ? Text{"this build has no HIP backend (Vulkan compiles for any card)",
                                              "本程序没有 HIP 后端（Vulkan 可为任何显卡即时编译）"}
                                       : Text{"no AMD card", "没有 AMD 显卡"};
    return c;
  }
  const auto program = read_bytes(m.hip_library, size_t{1} << 30);
  const auto built = gfx_targets_in(program.value_or(""));
  if (built.empty()) {
    c.status = Status::warning;
    c.evidence = {"the HIP backend's kernels do not say for which targets they are (compressed)",
                  "HIP 后端的内核没有标明目标（已压缩）"};
    return c;
  }
  const std::string forced = danqing::gfx_override(m.variable("HSA_OVERRIDE_GFX_VERSION"));
  for (const auto& card : m.cards) {
    if (card.vendor != "amd" || card.gfx.empty()) continue;
    const std::string target = forced.empty() ? card.gfx : forced;
    const bool there = std::count(built.begin(), built.end(), target) > 0;
    c.evidence = {fmt::format("{} is {}{}; kernels for {}", card.id, card.gfx,
                              forced.empty() ? "" : ", run as " + forced, joined(built)),
                  fmt::format("{} 是 {}{}；内核支持 {}", card.id, card.gfx,
                              forced.empty() ? "" : "，按 " + forced + " 运行", joined(built))};
    if (there) continue;
    c.status = Status::failed;
    c.remedy = {fmt::format("Build the HIP backend for {0} (DANQING_GFX_TARGETS={0} tools/build_backend.sh hip), or "
                            "use --device vulkan0. A card of the same "
                            "family may borrow kernels: HSA_OVERRIDE_GFX_VERSION=10.3.0 (RDNA2), 11.0.0 (RDNA3).",
                            card.gfx),
                fmt::format("为 {0} 编译 HIP 后端（DANQING_GFX_TARGETS={0} tools/build_backend.sh hip），或用 --device "
                            "vulkan0。同系列显卡可借用内核："
                            "HSA_OVERRIDE_GFX_VERSION=10.3.0（RDNA2）、11.0.0（RDNA3）。",
                            card.gfx)};
    return c;
  }
  if (c.evidence.empty()) {
    c.status = Status::skipped;
    c.evidence = {"the card's target is not known (no KFD)", "不知道显卡的目标（没有 KFD）"};
  }
  return c;
}

Check gfx_override(const Machine& m) {
  Check c{"gfx-override"};
  const std::string value = m.variable("HSA_OVERRIDE_GFX_VERSION");
  std::string hidden;
  for (const char* name :
       {"HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GGML_VK_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"})
    if (const std::string v = m.variable(name); !v.empty())
      hidden += fmt::format("{}{}={}", hidden.empty() ? "" : " ", name, one_line(v, 40));
  if (value.empty() && hidden.empty()) {
    c.evidence = {"nothing is overridden", "没有覆盖设置"};
    return c;
  }
  const std::string target = danqing::gfx_override(value);
  c.evidence.en = c.evidence.zh =
      (value.empty() ? "" : "HSA_OVERRIDE_GFX_VERSION=" + one_line(value, 40) + " ") + hidden;
  if (value.empty()) {
    c.status = Status::warning;
    c.remedy = {"Cards may be hidden from this program; unset the variable if one is missing.",
                "可能有显卡被隐藏；若缺少显卡，请取消该变量。"};
    return c;
  }
  const bool same = std::any_of(m.cards.begin(), m.cards.end(), [&](const auto& card) { return card.gfx == target; });
  c.status = target.empty() ? Status::failed : same ? Status::ok : Status::warning;
  if (target.empty())
    c.remedy = {"Expected three numbers such as 10.3.0; ROCm does not start with this.",
                "应为三个数字，如 10.3.0；这样 ROCm 无法启动。"};
  else if (!same)
    c.remedy = {
        "The card runs kernels of " + target +
            ", which is not its own target: if results are wrong or it faults, "
            "unset the variable. Prove it with danqing verify DIR --device hip0.",
        "显卡在运行 " + target +
            " 的内核，并非它自己的目标：结果不对或出错时请取消该变量。用 danqing verify DIR --device hip0 验证。"};
  return c;
}

std::string driver_of(const std::string& icd) {
  const auto has = [&](const char* part) { return icd.find(part) != std::string::npos; };
  return has("radeon")                                       ? "RADV"
         : has("amd_icd") || has("amdvlk") || has("amd_pro") ? "AMD"
         : has("lvp")                                        ? "lavapipe"
         : has("nvidia")                                     ? "NVIDIA"
         : has("intel")                                      ? "Intel"
         : has("dzn")                                        ? "dozen"
                                                             : icd;
}

Check vulkan_driver(const Machine& m) {
  Check c{"vulkan-driver"};
  std::set<std::string> drivers;
  std::string forced = m.variable("VK_DRIVER_FILES");
  if (forced.empty()) forced = m.variable("VK_ICD_FILENAMES");
  if (!forced.empty()) {
    std::istringstream in(forced);
    for (std::string file; std::getline(in, file, ':');) drivers.insert(driver_of(fs::path(file).filename().string()));
  } else {
    for (const char* dir : {"usr/share/vulkan/icd.d", "etc/vulkan/icd.d", "usr/local/share/vulkan/icd.d"})
      for (const std::string& n : names(m.root / dir))
        if (n.size() > 5 && n.substr(n.size() - 5) == ".json") drivers.insert(driver_of(n));
  }
  std::string list;
  for (const std::string& d : drivers) list += (list.empty() ? "" : ", ") + d;
  std::string used;
  bool software = false;
  for (const DeviceProbe& d : m.devices)
    if (d.info.backend == "Vulkan") {
      used += (used.empty() ? "" : ", ") + d.info.name + " (" + d.info.description + ")";
      software |= d.info.description.find("llvmpipe") != std::string::npos;
    }
  c.evidence = {fmt::format("drivers: {}; used: {}", list.empty() ? "none" : list, used.empty() ? "none" : used),
                fmt::format("驱动：{}；使用：{}", list.empty() ? "无" : list, used.empty() ? "无" : used)};
  const bool only_software = !drivers.empty() && drivers == std::set<std::string>{"lavapipe"};
  if (m.cards.empty()) {
    c.status = Status::skipped;
  } else if (software || only_software) {
    c.status = Status::warning;
    c.remedy = {
        "llvmpipe computes on the processor, slower than --device cpu: install the card's driver "
        "(mesa-vulkan-drivers) and check dri-access.",
        "llvmpipe 在处理器上计算，比 --device cpu 还慢：安装显卡驱动（mesa-vulkan-drivers），并检查 dri-access。"};
  } else if (drivers.empty()) {
    c.status = Status::warning;
    c.remedy = {"apt install mesa-vulkan-drivers vulkan-tools; vulkaninfo --summary",
                "apt install mesa-vulkan-drivers vulkan-tools；vulkaninfo --summary"};
  } else if (drivers.count("RADV") && drivers.count("AMD") && forced.empty()) {
    c.status = Status::warning;
    c.remedy = {
        "Two drivers for one card: which one is used is left to the loader. RADV is the safer choice: "
        "VK_DRIVER_FILES=/usr/share/vulkan/icd.d/radeon_icd.x86_64.json",
        "一块显卡有两个驱动，由加载器任选。建议用 "
        "RADV：VK_DRIVER_FILES=/usr/share/vulkan/icd.d/radeon_icd.x86_64.json"};
  }
  return c;
}

}  // namespace

std::vector<Check> check_runtime(const Machine& m) {
  return {rocm(m), gfx_target(m), gfx_override(m), vulkan_driver(m)};
}

}  // namespace danqing::doctor
