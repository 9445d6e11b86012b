// Gives tensors of a ggml context their place in device buffers. Shared by Weights and State; not for other
// layers.
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
/// What a tensor takes in a buffer of the device, padding included.
uint64_t placed_bytes(const Device& device, const ggml_tensor* t);
/// Tensors first ... end - 1 of a list share a buffer.
struct Pack {
  size_t first = 0, end = 0;
  uint64_t bytes = 0;
};
/// In order into as few buffers as the device's largest (or `largest`, in tests) allows; allocates nothing.
std::vector<Pack> pack(const Device& device, const std::vector<ggml_tensor*>& tensors, size_t largest = SIZE_MAX);
/// Gives the tensors of a pack their addresses in `buffer`. Error device_lost when its driver refuses.
Result<void> put(const Device& device, ggml_backend_buffer_t buffer, const std::vector<ggml_tensor*>& tensors,
                 const Pack& pack, std::string_view what);
/// pack(), allocate, put(). Error does_not_fit.
Result<std::vector<Device::Buffer>> place(Device& device, const std::vector<ggml_tensor*>& tensors,
                                          std::string_view what, size_t largest = SIZE_MAX);

}  // namespace danqing
