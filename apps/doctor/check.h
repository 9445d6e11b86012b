// What `danqing doctor` looks at: each check says what it found and what to do.
#pragma once
#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include "danqing/memory.h"
#include "device/device.h"
#include "doctor/text.h"
#include "monitor/reading.h"

namespace danqing::doctor {

enum class Status { ok, warning, failed, skipped };
std::string_view name(Status s);

struct Check {
  std::string id;
  Status status = Status::ok;
  Text evidence, remedy;  ///< remedy: empty when there is nothing to do
};

/// One device of ggml's, with what a short trial showed.
struct DeviceProbe {
  DeviceInfo info;
  std::string pci;
  uint64_t largest_buffer = 0;  ///< bytes; 0: not known
  /// Relative L2 of a small product against the same in f64; an Error when the device does not start or compute.
  Result<double> deviation = 0.0;
};
/// Opens every device in turn.
std::vector<DeviceProbe> probe_devices();

/// Everything the checks read; tests replace it.
struct Machine {
  std::filesystem::path root = "/";
  std::function<std::string(const char*)> variable;  ///< of the environment, empty when unset
  std::vector<DeviceProbe> devices;
  std::vector<monitor::CardReading> cards;
  monitor::HostReading host;
  std::filesystem::path hip_library;  ///< ggml's HIP backend, where this program uses it; empty: none
  struct Identity {
    unsigned user = 0;
    std::vector<unsigned> groups;
  };
  std::optional<Identity> identity;        ///< whose rights; absent: this process', as the kernel decides
  std::filesystem::path model;             ///< empty: none was named
  std::optional<Result<MemoryPlan>> plan;  ///< of a picture of the model's own size on the best device
  std::filesystem::path work = ".";        ///< where pictures and downloads go
};
/// This machine, or the recorded one below `root` (no devices are opened for it).
Machine look_around(const std::filesystem::path& root);

// By subject; each returns one or several checks, in the order in which they are shown.
std::vector<Check> check_driver(const Machine& m);   ///< amdgpu, kfd, kfd-access, dri-access, wsl
std::vector<Check> check_runtime(const Machine& m);  ///< rocm, gfx-target, gfx-override, vulkan-driver
std::vector<Check> check_devices(const Machine& m);  ///< allocation, memory-map, numa, compute, speed, offload
std::vector<Check> check_host(const Machine& m);     ///< cpu, memory, disk, model
std::vector<Check> check_all(const Machine& m);


}  // namespace danqing::doctor
