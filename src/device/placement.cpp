#include "device/placement.h"

#include <algorithm>
#include <string>

#include "base/tensor.h"
#include "base/try.h"

namespace danqing {

ggml_context* tensor_context(size_t n) { return ggml_init({(n + 1) * ggml_tensor_overhead(), nullptr, true}); }

Result<ggml_tensor*> new_tensor(ggml_context* ctx, ggml_type type, const Shape& shape, std::string_view name) {
  const bool sane = shape.size() <= 4 && element_count(shape) > 0 && element_count(shape) < (int64_t{1} << 48);
  if (!sane || (!shape.empty() && shape.back() % ggml_blck_size(type) != 0))
    return bad_input("[device] expected 0 to 4 axes of whole {} blocks for {}, got {}", ggml_type_name(type), name,
                     to_string(shape));
  int64_t ne[4] = {1, 1, 1, 1};
  std::reverse_copy(shape.begin(), shape.end(), ne);
  ggml_tensor* t = ggml_new_tensor(ctx, type, 4, ne);
  ggml_set_name(t, std::string(name).c_str());
  return t;
}

uint64_t placed_bytes(const Device& device, const ggml_tensor* t) {
  const ggml_backend_buffer_type_t type = device.buffer_type();
  const uint64_t align = ggml_backend_buft_get_alignment(type);
  return (ggml_backend_buft_get_alloc_size(type, t) + align - 1) / align * align;
}

std::vector<Pack> pack(const Device& device, const std::vector<ggml_tensor*>& tensors, size_t largest) {
  const uint64_t most = std::min(largest, device.largest_buffer());
  std::vector<Pack> packs;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const uint64_t bytes = placed_bytes(device, tensors[i]);
    if (packs.empty() || packs.back().bytes + bytes > most) packs.push_back({i, i, 0});
    packs.back().end = i + 1;
    packs.back().bytes += bytes;
  }
  return packs;
}

Result<void> put(const Device& device, ggml_backend_buffer_t buffer, const std::vector<ggml_tensor*>& tensors,
                 const Pack& pack, std::string_view what) {
  char* at = static_cast<char*>(ggml_backend_buffer_get_base(buffer));
  for (size_t i = pack.first; i < pack.end; ++i) {
    if (ggml_backend_tensor_alloc(buffer, tensors[i], at) != GGML_STATUS_SUCCESS)
      return fail(ErrorCode::device_lost, "[memory] expected {} to take the {}, got an error from its driver",
                  device.info().name, what);
    at += placed_bytes(device, tensors[i]);
  }
  return {};
}

Result<std::vector<Device::Buffer>> place(Device& device, const std::vector<ggml_tensor*>& tensors,
                                          std::string_view what, size_t largest) {
  std::vector<Device::Buffer> buffers;
  for (const Pack& p : pack(device, tensors, largest)) {
    DQ_TRY(Device::Buffer buffer, device.allocate(p.bytes, what));
    DQ_CHECK(put(device, buffer.get(), tensors, p, what));
    buffers.push_back(std::move(buffer));
  }
  return buffers;
}

}  // namespace danqing
