#include "common/version_text.h"

#include <fmt/format.h>

#include "common/device_option.h"
#include "danqing/engine.h"
#include "device/device.h"
#include "device/kernels/onednn.h"

namespace danqing::app {

std::string version_text() {
  std::string s =
      fmt::format("danqing {}\nggml {}\nonednn {}\n", version(), ggml_version_text(), kernels::onednn_text());
  s += devices_text();
  const auto cpu = Device::open("cpu");
  return s + fmt::format("cpu features: {}\ncpu kernels: {}\n", cpu_features(), cpu ? (*cpu)->kernels_text() : "none");
}

}  // namespace danqing::app
