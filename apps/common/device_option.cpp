#include "common/device_option.h"

#include <fmt/format.h>

#include <cstdio>

#include "base/units.h"
#include "device/backends.h"
#include "device/device.h"

namespace danqing::app {

void add_device_option(CLI::App& c, std::string& device, const std::string& group) {
  c.add_option("--device", device,
               "auto, cpu, a card by name, or several with commas (their memory is used together); list shows them")
      ->group(group)
      ->capture_default_str()
      ->trigger_on_parse()
      ->each([](const std::string& word) {
        if (word != "list") return;
        std::fputs(devices_text().c_str(), stdout);
        throw CLI::Success();
      });
}

std::string devices_text() {
  std::string s;
  for (const DeviceInfo& d : list_devices()) {
    s += fmt::format("device {}: {} ({}), {} of {} free", d.name, d.description, d.backend, format_bytes(d.memory_free),
                     format_bytes(d.memory_total));
    s += d.unusable.empty() ? "\n" : fmt::format("; not used: {}\n", d.unusable);
  }
  for (const BackendStatus& b : backends())
    if (!b.reason.empty()) s += skipped_text(b) + "\n";
  return s + fmt::format("auto takes {}\n", devices_by_preference().front());
}

}  // namespace danqing::app
