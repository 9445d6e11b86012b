// A look at this machine: what the checks read, and a trial of each device.
#include <dlfcn.h>
#include <link.h>

#include <cmath>
#include <cstdlib>

#include "base/try.h"
#include "device/graph.h"
#include "device/pci.h"
#include "doctor/check.h"
#include "nn/nn.h"

namespace danqing::doctor {
namespace {

constexpr int64_t kRows = 96, kInner = 256, kColumns = 160;

std::vector<float> numbers(size_t n, uint32_t seed) {
  std::vector<float> v(n);
  for (float& x : v) {
    seed = seed * 1664525u + 1013904223u;
    x = static_cast<float>(seed >> 8) / 8388608.0f - 1;
  }
  return v;
}

/// Relative L2 of x W^T on the device against f64.
Result<double> trial(Device& device) {
  auto graph = std::make_unique<Graph>(device, 8);
  ggml_tensor* x = graph->input("x", DType::f32, {kRows, kInner});
  ggml_tensor* w = graph->input("w", DType::f32, {kColumns, kInner});
  graph->output("y", nn::linear(*graph, x, w), {kRows, kColumns});
  Runner runner(std::move(graph));
  const std::vector<float> a = numbers(kRows * kInner, 1), b = numbers(kColumns * kInner, 2);
  DQ_CHECK(runner.set("x", std::span<const float>(a)));
  DQ_CHECK(runner.set("w", std::span<const float>(b)));
  DQ_CHECK(runner.run());
  DQ_TRY(const Tensor y, runner.read("y"));
  double error = 0, size = 0;
  for (int64_t r = 0; r < kRows; ++r)
    for (int64_t c = 0; c < kColumns; ++c) {
      double want = 0;
      for (int64_t k = 0; k < kInner; ++k)
        want += static_cast<double>(a[static_cast<size_t>(r * kInner + k)]) * b[static_cast<size_t>(c * kInner + k)];
      const double got = y.data[static_cast<size_t>(r * kColumns + c)];
      error += (got - want) * (got - want);
      size += want * want;
    }
  const double deviation = std::sqrt(error / size);
  return std::isfinite(deviation) ? deviation : 1.0;
}

/// ggml's HIP backend, if this process has it: a library of its own, or a part of the program.
std::filesystem::path hip_library() {
  struct Search {
    std::filesystem::path found;
  } search;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        if (info->dlpi_name && std::string_view(info->dlpi_name).find("ggml-hip") != std::string_view::npos)
          static_cast<Search*>(data)->found = info->dlpi_name;
        return 0;
      },
      &search);
  return search.found;
}

}  // namespace

std::vector<DeviceProbe> probe_devices() {
  std::vector<DeviceProbe> out;
  for (DeviceInfo& info : list_devices()) {
    DeviceProbe p;
    p.info = std::move(info);
    p.pci = pci_address(p.info.name);
    auto device = Device::open(p.info.name, {});
    if (device) {
      p.largest_buffer = (*device)->largest_buffer();
      p.deviation = trial(**device);
    } else {
      p.deviation = device.error();
    }
    out.push_back(std::move(p));
  }
  return out;
}

Machine look_around(const std::filesystem::path& root) {
  Machine m;
  m.root = root;
  m.variable = [](const char* name) {
    const char* v = std::getenv(name);
    return std::string(v ? v : "");
  };
  m.cards = monitor::read_cards({.root = root, .nvml = {}});
  m.host = monitor::read_host({.root = root, .nvml = {}});
  if (root != "/") {
    m.variable = [](const char*) { return std::string(); };
    return m;
  }
  m.devices = probe_devices();
  m.hip_library = hip_library();
  return m;
}

std::vector<Check> check_all(const Machine& m) {
  std::vector<Check> all;
  for (auto* part : {check_driver, check_runtime, check_devices, check_host})
    for (Check& c : part(m)) all.push_back(std::move(c));
  return all;
}

std::string_view name(Status s) {
  switch (s) {
    case Status::ok: return "ok";
    case Status::warning: return "warning";
    case Status::failed: return "failed";
    case Status::skipped: return "skipped";
  }
  return "";
}

}  // namespace danqing::doctor
