#include "device/transfer.h"

#include <chrono>
#include <cstring>
#include <memory>
#include <vector>

#include "base/try.h"
#include "device/placement.h"

namespace danqing {
namespace {

struct FreeContext {
  void operator()(ggml_context* c) const { ggml_free(c); }
};
struct FreeBuffer {
  void operator()(ggml_backend_buffer_t b) const { ggml_backend_buffer_free(b); }
};
using HostBuffer = std::unique_ptr<struct ggml_backend_buffer, FreeBuffer>;

Result<HostBuffer> pinned(const Device& device, size_t bytes) {
  ggml_backend_buffer_type_t type = ggml_backend_dev_host_buffer_type(ggml_backend_get_device(device.backend()));
  if (!type)
    return fail(ErrorCode::failed, "[transfer] expected pinned host memory from {}, got none", device.info().name);
  HostBuffer b(ggml_backend_buft_alloc_buffer(type, bytes));
  if (!b || !ggml_backend_buffer_get_base(b.get()))
    return fail(ErrorCode::does_not_fit, "[transfer] expected {} bytes of pinned host memory, got a refusal", bytes);
  return b;
}

}  // namespace

Result<double> transfer_seconds(Device& device, Transfer kind, size_t bytes, int repetitions) {
  const std::unique_ptr<ggml_context, FreeContext> context(tensor_context(2));
  if (!context) return fail(ErrorCode::does_not_fit, "[transfer] no host memory");
  const auto n = static_cast<int64_t>(bytes);
  DQ_TRY(ggml_tensor * a, new_tensor(context.get(), GGML_TYPE_I8, {n}, "a"));
  DQ_TRY(ggml_tensor * b, new_tensor(context.get(), GGML_TYPE_I8, {n}, "b"));
  const bool twice = kind == Transfer::on_device;
  std::vector<ggml_tensor*> tensors{a};
  if (twice) tensors.push_back(b);
  DQ_TRY(const std::vector<Device::Buffer> buffers, place(device, tensors, "bandwidth test"));
  HostBuffer host;
  std::unique_ptr<std::byte[]> ordinary;
  void* memory = nullptr;
  if (kind == Transfer::to_device_pinned || kind == Transfer::from_device_pinned) {
    DQ_TRY(host, pinned(device, bytes));
    memory = ggml_backend_buffer_get_base(host.get());
  } else if (!twice) {
    ordinary.reset(new std::byte[bytes]);
    memory = ordinary.get();
  }
  if (memory) std::memset(memory, 1, bytes);  // pages that nobody touched are read from one page of zeros
  double best = 0;
  try {
    for (int i = 0; i <= repetitions; ++i) {  // the first one warms up
      const auto begin = std::chrono::steady_clock::now();
      if (twice)
        ggml_backend_tensor_copy(a, b);
      else if (kind == Transfer::to_device || kind == Transfer::to_device_pinned)
        ggml_backend_tensor_set(a, memory, 0, bytes);
      else
        ggml_backend_tensor_get(a, memory, 0, bytes);
      ggml_backend_synchronize(device.backend());
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      if (i > 0 && (best == 0 || seconds < best)) best = seconds;
    }
  } catch (const std::exception& e) {
    return fail(ErrorCode::device_lost,
                "[transfer] expected {} to copy {} bytes, got a failure of the device or its driver",
                device.info().name, bytes);
  }
  return best;
}

}  // namespace danqing
