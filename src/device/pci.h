// Which piece of hardware a device is.
#pragma once
#include <string>
#include <string_view>

namespace danqing {

/// PCI address of a device of list_devices(), "0000:03:00.0"; empty for the CPU, for unknown names, and where the
/// backend does not tell.
std::string pci_address(std::string_view device_name);

}  // namespace danqing
