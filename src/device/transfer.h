// How fast bytes get to a device and back. For measuring; models place their tensors with Weights.
#pragma once
#include <cstddef>
#include <cstdint>

#include "device/device.h"

namespace danqing {

enum class Transfer {
  to_device,           ///< from ordinary host memory
  from_device,         ///< into ordinary host memory
  to_device_pinned,    ///< from host memory that the driver allocated, where the backend has such
  from_device_pinned,  ///< into such memory
  on_device,           ///< from one buffer of the device to another
};
/// Seconds of one copy of `bytes`, the shortest of `repetitions`. Errors: does_not_fit; failed: the backend has no
/// pinned host memory, or the device failed.
Result<double> transfer_seconds(Device& device, Transfer kind, size_t bytes, int repetitions);

}  // namespace danqing
