// Machines as recorded, and what the doctor says of them.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <map>

#include "device/gfx.h"
#include "doctor/check.h"
#include "doctor/report.h"
#include "monitor/tree.h"

namespace danqing::doctor {
namespace {

using monitor::Tree;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Patient {
 public:
  Tree tree;
  std::map<std::string, std::string> variables;

  Machine machine() {
    Machine m;
    m.root = tree.root();
    m.variable = [this](const char* name) { return variables[name]; };
    m.cards = monitor::read_cards({.root = tree.root(), .nvml = {}});
    m.host = monitor::read_host({.root = tree.root(), .nvml = {}});
    m.identity = Machine::Identity{1000, {1000}};
    m.work = tree.root();
    return m;
  }
  /// A Radeon that is well: driver, device files that everybody may open, ROCm, RADV.
  void healthy() {
    tree.host();
    tree.radeon();
    tree.write("sys/bus/pci/devices/0000:03:00.0/vendor", "0x1002\n");
    tree.write("sys/bus/pci/devices/0000:03:00.0/class", "0x030000\n");
    bind("amdgpu");
    tree.write("sys/module/amdgpu/version", "6.12.12\n");
    tree.write("proc/sys/kernel/osrelease", "6.8.0-45-generic\n");
    tree.write("proc/cpuinfo", "model name\t: Some CPU\nflags\t\t: sse4_2 avx avx2 fma\n");
    tree.write("etc/group", "root:x:0:\nvideo:x:44:\nrender:x:109:anna\n");
    device("dev/kfd", 0666);
    device("dev/dri/renderD128", 0666);
    tree.write("opt/rocm-6.2.0/lib/libamdhip64.so.6", "");
    tree.write("opt/rocm-6.2.0/.info/version", "6.2.0-66\n");
    tree.write("etc/ld.so.conf.d/rocm.conf", "/opt/rocm-6.2.0/lib\n");
    tree.write("usr/share/vulkan/icd.d/radeon_icd.x86_64.json", "{}");
  }
  void bind(const std::string& driver) {
    const auto link = tree.root() / "sys/bus/pci/devices/0000:03:00.0/driver";
    std::filesystem::remove(link);
    if (!driver.empty()) std::filesystem::create_symlink("../../../../bus/pci/drivers/" + driver, link);
  }
  void device(const std::string& path, mode_t mode) {
    tree.write(path, "");
    ASSERT_EQ(chmod((tree.root() / path).c_str(), mode), 0);
  }
};

Check find(const std::vector<Check>& all, const std::string& id) {
  for (const Check& c : all)
    if (c.id == id) return c;
  ADD_FAILURE() << "no check " << id;
  return {};
}
Check check(Patient& p, const std::string& id) { return find(check_all(p.machine()), id); }

#define EXPECT_CHECK(patient, id, wanted, text)                                 \
  do {                                                                          \
    const Check c_ = check(patient, id);                                        \
    EXPECT_EQ(name(c_.status), name(wanted)) << c_.evidence.en << c_.remedy.en; \
    EXPECT_THAT(c_.evidence.en + " -> " + c_.remedy.en, HasSubstr(text));       \
    EXPECT_FALSE(c_.evidence.zh.empty());                                       \
    EXPECT_EQ(c_.remedy.en.empty(), c_.remedy.zh.empty());                      \
    EXPECT_TRUE(wanted != Status::failed || !c_.remedy.empty());                \
  } while (0)

TEST(Doctor, AHealthyMachine) {
  Patient p;
  p.healthy();
  for (const Check& c : check_all(p.machine())) {
    if (c.id == "memory-map" || c.id == "disk")
      continue;  // a small BAR is written into the recording; the disk is ours
    EXPECT_TRUE(c.status == Status::ok || c.status == Status::skipped)
        << c.id << ": " << c.evidence.en << " " << c.remedy.en;
  }
  EXPECT_CHECK(p, "amdgpu", Status::ok, "amdgpu 6.12.12 on kernel 6.8.0-45-generic");
  EXPECT_CHECK(p, "rocm", Status::ok, "libamdhip64.so.6; version 6.2.0-66");
  EXPECT_CHECK(p, "vulkan-driver", Status::ok, "RADV");
  EXPECT_CHECK(p, "cpu", Status::ok, "AVX2");
}

TEST(Doctor, NothingAtAll) {
  Patient p;
  for (const Check& c : check_all(p.machine())) {
    EXPECT_NE(c.status, Status::failed) << c.id;
    EXPECT_FALSE(c.evidence.en.empty() || c.evidence.zh.empty()) << c.id;
  }
}

TEST(Doctor, Driver) {
  Patient p;
  p.healthy();
  p.bind("vfio-pci");
  EXPECT_CHECK(p, "amdgpu", Status::failed, "driver vfio-pci");
  p.bind("");
  EXPECT_CHECK(p, "amdgpu", Status::failed, "driver none");
  p.tree.remove("dev/kfd");
  EXPECT_CHECK(p, "kfd", Status::warning, "/dev/kfd is missing");
  EXPECT_CHECK(p, "kfd-access", Status::skipped, "no /dev/kfd");
}

TEST(Doctor, RightsByGroup) {
  Patient p;
  p.healthy();
  p.device("dev/kfd", 0660);
  struct stat info {};
  ASSERT_EQ(stat((p.tree.root() / "dev/kfd").c_str(), &info), 0);
  const unsigned owner = info.st_gid;
  p.tree.write("etc/group", "render:x:" + std::to_string(owner) + ":\n");
  EXPECT_CHECK(p, "kfd-access", Status::failed,
               "group render (" + std::to_string(owner) + "), mode 0660; this process: user 1000, groups 1000");
  EXPECT_CHECK(p, "kfd-access", Status::failed, "usermod -aG render");
  p.tree.write("etc/group", "");
  EXPECT_CHECK(p, "kfd-access", Status::failed,
               "has no name here, as in a container: start it with --group-add " + std::to_string(owner));
  Machine m = p.machine();
  m.identity->groups.push_back(owner);
  EXPECT_EQ(find(check_driver(m), "kfd-access").status, Status::ok);
  m.identity = Machine::Identity{0, {0}};
  EXPECT_EQ(find(check_driver(m), "kfd-access").status, Status::ok) << "root may";
  EXPECT_CHECK(p, "dri-access", Status::ok, "/dev/dri/renderD128");
  p.device("dev/dri/renderD128", 0600);
  EXPECT_CHECK(p, "dri-access", Status::failed, "mode 0600");
}

TEST(Doctor, Wsl) {
  Patient p;
  p.healthy();
  EXPECT_CHECK(p, "wsl", Status::skipped, "not under WSL");
  p.tree.write("proc/sys/kernel/osrelease", "5.15.167.4-microsoft-standard-WSL2\n");
  EXPECT_CHECK(p, "wsl", Status::failed, "/dev/dxg is missing");
  p.tree.write("dev/dxg", "");
  EXPECT_CHECK(p, "wsl", Status::warning, "HSA_ENABLE_DXG_DETECTION=1");
  p.variables["HSA_ENABLE_DXG_DETECTION"] = "1";
  EXPECT_CHECK(p, "wsl", Status::ok, "is there");
}

TEST(Doctor, Rocm) {
  Patient p;
  p.healthy();
  p.tree.remove("etc/ld.so.conf.d");
  EXPECT_CHECK(p, "rocm", Status::warning, "ld.so.conf.d/rocm.conf");
  p.tree.write("etc/ld.so.conf.d/rocm.conf", "# comment\n  /opt/rocm-6.2.0/lib  \n");
  EXPECT_CHECK(p, "rocm", Status::ok, "6.2.0");
  p.tree.write("opt/rocm-7.1.1/.info/version", "7.1.1\n");
  EXPECT_CHECK(p, "rocm", Status::warning, "Several ROCm versions");
  p.tree.remove("opt");
  EXPECT_CHECK(p, "rocm", Status::skipped, "does without");
  Machine m = p.machine();
  m.hip_library = "/usr/lib/libggml-hip.so";
  EXPECT_EQ(find(check_runtime(m), "rocm").status, Status::failed);
}

TEST(Doctor, GfxTargets) {
  EXPECT_THAT(gfx_targets_in("..hipv4-amdgcn-amd-amdhsa--gfx1100\0hip-amdgcn-amd-amdhsa--gfx90a:xnack- "
                             "amdgcn-amd-amdhsa--gfx1100 --gfx11"),
              ElementsAre("gfx1100"));
  const std::string program =
      std::string("\0ELF hipv4-amdgcn-amd-amdhsa--gfx90a:sramecc+ x amdgcn-amd-amdhsa--gfx1030\0", 78);
  EXPECT_THAT(gfx_targets_in(program), ElementsAre("gfx1030", "gfx90a"));
  EXPECT_THAT(gfx_targets_in("amdgcn-amd-amdhsa--gfx"), IsEmpty());
  Patient p;
  p.healthy();
  EXPECT_CHECK(p, "gfx-target", Status::skipped, "no HIP backend");
  p.tree.write("lib/libggml-hip.so", program);
  Machine m = p.machine();
  m.hip_library = p.tree.root() / "lib/libggml-hip.so";
  Check c = find(check_runtime(m), "gfx-target");
  EXPECT_EQ(c.status, Status::failed);
  EXPECT_THAT(c.evidence.en, HasSubstr("card0 is gfx1100; kernels for gfx1030 gfx90a"));
  p.variables["HSA_OVERRIDE_GFX_VERSION"] = "10.3.0";
  c = find(check_runtime(m), "gfx-target");
  EXPECT_EQ(c.status, Status::ok);
  EXPECT_THAT(c.evidence.en, HasSubstr("run as gfx1030"));
  p.tree.write("lib/libggml-hip.so", "CCOB compressed");
  EXPECT_EQ(find(check_runtime(m), "gfx-target").status, Status::warning);
}

TEST(Doctor, GfxOverride) {
  Patient p;
  p.healthy();
  EXPECT_CHECK(p, "gfx-override", Status::ok, "nothing is overridden");
  p.variables["HSA_OVERRIDE_GFX_VERSION"] = "11.0.0";
  EXPECT_CHECK(p, "gfx-override", Status::ok, "11.0.0");
  p.variables["HSA_OVERRIDE_GFX_VERSION"] = "10.3.0";
  EXPECT_CHECK(p, "gfx-override", Status::warning, "kernels of gfx1030");
  p.variables["HSA_OVERRIDE_GFX_VERSION"] = "gfx1030";
  EXPECT_CHECK(p, "gfx-override", Status::failed, "three numbers");
  p.variables["HSA_OVERRIDE_GFX_VERSION"] = "";
  p.variables["HIP_VISIBLE_DEVICES"] = "1";
  EXPECT_CHECK(p, "gfx-override", Status::warning, "HIP_VISIBLE_DEVICES=1");
}

DeviceProbe probe(const std::string& name, const std::string& backend, const std::string& description) {
  DeviceProbe d;
  d.info.name = name, d.info.backend = backend, d.info.description = description;
  d.largest_buffer = uint64_t{4} << 30;
  d.deviation = 1e-7;
  return d;
}

TEST(Doctor, Vulkan) {
  Patient p;
  p.healthy();
  p.tree.write("usr/share/vulkan/icd.d/amd_icd64.json", "{}");
  EXPECT_CHECK(p, "vulkan-driver", Status::warning, "Two drivers");
  p.variables["VK_DRIVER_FILES"] = "/usr/share/vulkan/icd.d/radeon_icd.x86_64.json";
  EXPECT_CHECK(p, "vulkan-driver", Status::ok, "drivers: RADV");
  p.variables.clear();
  p.tree.remove("usr/share/vulkan");
  EXPECT_CHECK(p, "vulkan-driver", Status::warning, "mesa-vulkan-drivers");
  p.tree.write("usr/share/vulkan/icd.d/lvp_icd.x86_64.json", "{}");
  EXPECT_CHECK(p, "vulkan-driver", Status::warning, "llvmpipe computes on the processor");
  Machine m = p.machine();
  p.tree.write("usr/share/vulkan/icd.d/radeon_icd.x86_64.json", "{}");
  m.devices = {probe("vulkan0", "Vulkan", "llvmpipe (LLVM 15.0.6, 256 bits)")};
  EXPECT_EQ(find(check_runtime(m), "vulkan-driver").status, Status::warning);
  EXPECT_THAT(find(check_devices(m), "speed").evidence.en, HasSubstr("does not use it"));
}

TEST(Doctor, MemoryAndNodes) {
  Patient p;
  p.healthy();
  EXPECT_CHECK(p, "memory-map", Status::warning, "Small BAR");
  p.tree.write(Tree::dev("card0") + "mem_info_vis_vram_total", "25753026560\n");
  EXPECT_CHECK(p, "memory-map", Status::ok, "VRAM 23.98 GiB");
  Patient apu;
  apu.tree.host();
  apu.tree.apu();
  EXPECT_CHECK(apu, "memory-map", Status::warning, "ttm.pages_limit");
  apu.tree.write("sys/fs/cgroup/memory.max", "1073741824\n");
  apu.tree.write("sys/fs/cgroup/memory.current", "536870912\n");
  EXPECT_CHECK(apu, "memory", Status::warning, "the control group's limit");
  EXPECT_CHECK(p, "numa", Status::ok, "2 memory nodes");
  p.tree.write(Tree::dev("card0") + "numa_node", "1\n");
  p.tree.write("sys/devices/system/node/node1/cpulist", "60000-60007\n");  // where this process never runs
  EXPECT_CHECK(p, "numa", Status::warning, "numactl --cpunodebind=1");
}

TEST(Doctor, Devices) {
  Patient p;
  p.healthy();
  Machine m = p.machine();
  m.devices = {probe("cpu", "CPU", "Some CPU"), probe("vulkan0", "Vulkan", "AMD Radeon RX 7900 XTX (RADV NAVI31)")};
  EXPECT_EQ(find(check_devices(m), "compute:vulkan0").status, Status::ok);
  EXPECT_EQ(find(check_devices(m), "speed").status, Status::ok) << find(check_devices(m), "speed").evidence.en;
  EXPECT_THAT(find(check_devices(m), "allocation").evidence.en, HasSubstr("vulkan0: 4.00 GiB"));
  m.devices[1].deviation = 0.3;
  EXPECT_EQ(find(check_devices(m), "compute:vulkan0").status, Status::failed);
  m.devices[1].deviation = Error{ErrorCode::device_lost, "[device] expected vulkan0 to start"};
  EXPECT_EQ(find(check_devices(m), "compute:vulkan0").status, Status::failed);
  m.devices[1].largest_buffer = uint64_t{256} << 20;
  EXPECT_EQ(find(check_devices(m), "allocation").status, Status::warning);
}

TEST(Doctor, SlowBecause) {
  Patient p;
  p.healthy();
  Machine m = p.machine();
  m.devices = {probe("cpu", "CPU", "Some CPU")};
  EXPECT_THAT(find(check_devices(m), "speed").evidence.en, HasSubstr("there is a card and this build does not use it"));
  m.devices.push_back(probe("vulkan0", "Vulkan", "RADV"));
  m.cards[0].throttled = {"temperature"};
  m.cards[0].pcie_width = 4;
  const Check c = find(check_devices(m), "speed");
  EXPECT_EQ(c.status, Status::warning);
  EXPECT_THAT(c.evidence.en, AllOf(HasSubstr("throttled by temperature"), HasSubstr("4 of 16 PCIe lanes")));
  EXPECT_THAT(c.evidence.zh, HasSubstr("慢的原因"));
}

TEST(Doctor, OffloadAlthoughTheCardHasRoom) {
  Patient p;
  p.healthy();
  Machine m = p.machine();
  EXPECT_EQ(find(check_devices(m), "offload").status, Status::skipped);
  m.devices = {probe("vulkan0", "Vulkan", "RADV")};
  m.devices[0].info.memory_total = uint64_t{24} << 30;
  m.devices[0].info.memory_free = uint64_t{9} << 30;
  MemoryPlan plan;
  plan.device = "vulkan0";
  plan.mode = "layer streaming";
  plan.better = "whole";
  plan.better_needs = uint64_t{23} << 30;
  m.plan = plan;
  Check c = find(check_devices(m), "offload");
  EXPECT_EQ(c.status, Status::warning);
  EXPECT_THAT(c.evidence.en, HasSubstr("slow because 9.00 GiB of 24.00 GiB are free, and \"whole\" needs 23.00 GiB"));
  plan.better_needs = uint64_t{40} << 30;  // the card is too small for it: no fault of anybody
  m.plan = plan;
  EXPECT_EQ(find(check_devices(m), "offload").status, Status::ok);
  m.plan = Error{ErrorCode::does_not_fit, "[memory] expected 4 GiB"};
  c = find(check_devices(m), "offload");
  EXPECT_EQ(c.status, Status::failed);
  EXPECT_THAT(c.evidence.en, HasSubstr("4 GiB"));
}

TEST(Doctor, TheDevicesOfThisMachineComputeRightly) {
  const auto devices = probe_devices();
  ASSERT_FALSE(devices.empty());
  bool cpu = false;
  for (const DeviceProbe& d : devices) {
    cpu |= d.info.name == "cpu";
    ASSERT_TRUE(d.deviation) << d.deviation.error().message;
    EXPECT_LT(*d.deviation, 2e-3) << d.info.name;
    EXPECT_GT(*d.deviation, 0) << "f32 against f64 is never exact over 256 products";
  }
  EXPECT_TRUE(cpu);
}

TEST(Doctor, Model) {
  Patient p;
  p.healthy();
  Machine m = p.machine();
  EXPECT_EQ(find(check_host(m), "model").status, Status::skipped);
  m.model = danqing::testing::mini_model();
  const Check c = find(check_host(m), "model");
  EXPECT_EQ(c.status, Status::ok) << c.evidence.en;
  EXPECT_THAT(c.evidence.en, HasSubstr("transformer"));
  m.model = p.tree.root() / "nowhere";
  EXPECT_EQ(find(check_host(m), "model").status, Status::failed);
  std::filesystem::copy(danqing::testing::mini_model(), p.tree.root() / "model",
                        std::filesystem::copy_options::recursive);
  m.model = p.tree.root() / "model";
  for (const auto& e : std::filesystem::recursive_directory_iterator(m.model / "transformer"))
    if (e.path().extension() == ".safetensors") std::filesystem::resize_file(e.path(), e.file_size() / 2);
  EXPECT_EQ(find(check_host(m), "model").status, Status::failed) << "a file that ends early";
}

TEST(Doctor, ReportsInBothLanguages) {
  Patient p;
  p.healthy();
  p.bind("");
  const auto all = check_all(p.machine());
  const std::string en = report_text(all, Language::english), zh = report_text(all, Language::chinese);
  EXPECT_THAT(en, AllOf(HasSubstr("FAILED   amdgpu"), HasSubstr("-> sudo modprobe amdgpu"), HasSubstr("1 failed")));
  EXPECT_THAT(zh, AllOf(HasSubstr("失败     amdgpu"), HasSubstr("→ sudo modprobe amdgpu"), HasSubstr("1 项失败")));
  const Json j = to_json(all);
  EXPECT_EQ(j[0]["id"], "amdgpu");
  EXPECT_EQ(j[0]["status"], "failed");
  EXPECT_TRUE(j[0]["remedy"]["zh"].is_string());
  EXPECT_EQ(j.size(), all.size());
}

}  // namespace
}  // namespace danqing::doctor
