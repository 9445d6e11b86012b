// Gives tensors of a ggml context their place in device buffers. Shared by Weights and State; not for other layers.
#pragma once
#include <ggml.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "device/device.h"

namespace danqing {

/// A context that holds the descriptions of `n` tensors and no data. Null when the host has no memory for it.
ggml_context* tensor_context(size_t n);
/// New tensor in `ctx`; `shape` in torch order, 0 to 4 axes, sizes >= 1, rows whole blocks.
Result<ggml_tensor*> new_tensor(ggml_context* ctx, ggml_type type, const std::vector<int64_t>& shape,
                                std::string_view name);
/// Places `tensors` into as few buffers as the device's largest buffer (or `largest`, in tests) allows. Error
/// does_not_fit.
Result<std::vector<Device::Buffer>> place(Device& device, const std::vector<ggml_tensor*>& tensors,
                                          std::string_view what, size_t largest = SIZE_MAX);

}  // namespace danqing
