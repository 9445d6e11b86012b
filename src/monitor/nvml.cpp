// NVIDIA's management library, taken at run time where the driver brought it. Declarations of the functions used, after
// NVIDIA's public documentation of the API (docs.nvidia.com/deploy/nvml-api); their ABI is stable.
#include <dlfcn.h>

#include <memory>

#include "base/text.h"
#include "base/try.h"
#include "monitor/cards.h"
#include "monitor/sysfs.h"

namespace danqing::monitor {
namespace {

using Handle = void*;
struct Pci {  // nvmlPciInfo_t
  char old_bus_id[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};
struct Utilization {
  unsigned gpu, memory;
};
struct Memory {
  unsigned long long total, free, used;
};
struct FieldValue {  // nvmlFieldValue_t
  unsigned field, scope;
  long long timestamp, latency;
  int type, result;
  union {
    double d;
    unsigned u;
    unsigned long long ull;
  } value;
};
constexpr unsigned kFieldMemoryTemperature = 82;  // NVML_FI_DEV_MEMORY_TEMP
constexpr unsigned kNameBytes = 96, kVersionBytes = 80;

class Library {
 public:
  explicit Library(const Options& o) {
    if (!o.nvml.empty())
      handle_ = dlopen(o.nvml.c_str(), RTLD_NOW | RTLD_LOCAL);
    else
      for (const char* name : {"libnvidia-ml.so.1", "/usr/lib/wsl/lib/libnvidia-ml.so.1"})
        if (!handle_) handle_ = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    started_ = handle_ && call<int()>("nvmlInit_v2") == 0;
  }
  ~Library() {
    if (started_) call<int()>("nvmlShutdown");
    if (handle_) dlclose(handle_);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  bool started() const { return started_; }

  /// NVML's code, 0 = done; a function that this version lacks is "not supported" (3).
  template <class F, class... A>
  int call(const char* name, A... args) const {
    auto* f = reinterpret_cast<F*>(dlsym(handle_, name));
    return f ? f(args...) : 3;
  }
  template <class T, class... A>
  std::optional<T> get(const char* name, Handle card, A... args) const {
    T v{};
    return call<int(Handle, A..., T*)>(name, card, args..., &v) == 0 ? std::optional<T>(v) : std::nullopt;
  }

 private:
  void* handle_ = nullptr;
  bool started_ = false;
};

std::vector<std::string> reasons(unsigned long long bits) {
  // nvmlClocksThrottleReason*: 1 idle, 2 set by an application, 0x10 sync boost and 0x100 display are no complaints.
  std::vector<std::string> out;
  if (bits & (0x4 | 0x80)) out.emplace_back("power");                    // cap; brake from outside
  if (bits & (0x20 | 0x40)) out.emplace_back("temperature");             // software, hardware
  if (bits & 0x8 && !(bits & (0x40 | 0x80))) out.emplace_back("other");  // hardware slowdown of unsaid cause
  return out;
}

CardReading read_card(const Library& nvml, Handle h, const Options& o, const std::string& driver) {
  CardReading c;
  c.vendor = "nvidia";
  c.driver = driver;
  char name[kNameBytes + 1] = {};
  nvml.call<int(Handle, char*, unsigned)>("nvmlDeviceGetName", h, static_cast<char*>(name), kNameBytes);
  c.name = one_line(name, 80);
  if (const auto p = nvml.get<Pci>("nvmlDeviceGetPciInfo_v3", h))
    c.pci = fmt::format("{:04x}:{:02x}:{:02x}.0", p->domain, p->bus, p->device);
  int major = 0, minor = 0;
  if (nvml.call<int(Handle, int*, int*)>("nvmlDeviceGetCudaComputeCapability", h, &major, &minor) == 0)
    c.gfx = fmt::format("sm_{}{}", major, minor);
  if (const auto v = nvml.get<unsigned>("nvmlDeviceGetTemperature", h, 0)) c.edge_celsius = *v;
  FieldValue field{};
  field.field = kFieldMemoryTemperature;
  if (nvml.call<int(Handle, int, FieldValue*)>("nvmlDeviceGetFieldValues", h, 1, &field) == 0 && field.result == 0 &&
      field.value.u > 0 && field.value.u < 200)
    c.memory_celsius = field.value.u;
  if (const auto v = nvml.get<unsigned>("nvmlDeviceGetTemperatureThreshold", h, 1)) c.critical_celsius = *v;
  if (const auto u = nvml.get<Utilization>("nvmlDeviceGetUtilizationRates", h))
    c.load = u->gpu / 100.0, c.memory_load = u->memory / 100.0;
  if (const auto m = nvml.get<Memory>("nvmlDeviceGetMemoryInfo", h)) c.vram_total = m->total, c.vram_used = m->used;
  if (const auto v = nvml.get<unsigned>("nvmlDeviceGetPowerUsage", h)) c.power_watts = *v / 1e3;
  if (const auto v = nvml.get<unsigned>("nvmlDeviceGetEnforcedPowerLimit", h)) c.power_cap_watts = *v / 1e3;
  if (const auto v = nvml.get<unsigned long long>("nvmlDeviceGetTotalEnergyConsumption", h))
    c.energy_joules = static_cast<double>(*v) / 1e3;
  if (const auto v = nvml.get<unsigned>("nvmlDeviceGetClockInfo", h, 1)) c.core_mhz = *v;  // the SMs' clock
  if (const auto v = nvml.get<unsigned>("nvmlDeviceGetClockInfo", h, 2)) c.memory_mhz = *v;
  if (const auto v = nvml.get<unsigned>("nvmlDeviceGetFanSpeed", h)) c.fan_ratio = *v / 100.0;
  constexpr double kGenerations[] = {2.5, 5, 8, 16, 32, 64};
  if (const auto g = nvml.get<unsigned>("nvmlDeviceGetCurrPcieLinkGeneration", h); g && *g >= 1 && *g <= 6)
    c.pcie_gts = kGenerations[*g - 1];
  if (const auto g = nvml.get<unsigned>("nvmlDeviceGetMaxPcieLinkGeneration", h); g && *g >= 1 && *g <= 6)
    c.pcie_max_gts = kGenerations[*g - 1];
  if (const auto v = nvml.get<unsigned>("nvmlDeviceGetCurrPcieLinkWidth", h)) c.pcie_width = static_cast<int>(*v);
  if (const auto v = nvml.get<unsigned>("nvmlDeviceGetMaxPcieLinkWidth", h)) c.pcie_max_width = static_cast<int>(*v);
  if (const auto v = nvml.get<unsigned long long>("nvmlDeviceGetCurrentClocksThrottleReasons", h))
    c.throttled = reasons(*v);
  if (!c.pci.empty())
    if (const auto v = read_number(o.root / "sys/bus/pci/devices" / c.pci / "numa_node", 0, 4095))
      c.numa_node = static_cast<int>(*v);
  return c;
}

}  // namespace

std::vector<CardReading> read_nvidia_cards(const Options& o) {
  if (o.nvml.empty() && o.root != "/") return {};
  // Starting the library takes tens of milliseconds and wakes cards that sleep: once per process and path.
  static std::string path;
  static std::unique_ptr<Library> nvml;
  if (!nvml || path != o.nvml) {
    nvml.reset();
    nvml = std::make_unique<Library>(o);
    path = o.nvml;
  }
  std::vector<CardReading> cards;
  if (!nvml->started()) return cards;
  char version[kVersionBytes + 1] = {};
  nvml->call<int(char*, unsigned)>("nvmlSystemGetDriverVersion", static_cast<char*>(version), kVersionBytes);
  unsigned n = 0;
  if (nvml->call<int(unsigned*)>("nvmlDeviceGetCount_v2", &n) != 0) return cards;
  for (unsigned i = 0; i < n && i < 256; ++i) {
    Handle h = nullptr;
    if (nvml->call<int(unsigned, Handle*)>("nvmlDeviceGetHandleByIndex_v2", i, &h) != 0) continue;
    CardReading c = read_card(*nvml, h, o, one_line(version, 80));
    c.id = "nvidia" + std::to_string(i);
    cards.push_back(std::move(c));
  }
  return cards;
}

}  // namespace danqing::monitor
