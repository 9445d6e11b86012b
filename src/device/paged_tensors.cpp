#include "device/paged_tensors.h"

#include "base/try.h"
#include "device/placement.h"

namespace danqing {

Result<std::unique_ptr<DescribedTensors>> DescribedTensors::create(Device& device,
                                                                   const std::vector<ggml_tensor*>& tensors) {
  uint64_t bytes = 0;
  for (const ggml_tensor* t : tensors) bytes += placed_bytes(device, t);
  std::unique_ptr<DescribedTensors> d(new DescribedTensors(device, bytes));
  if (tensors.empty()) return d;
  d->tensors_.insert(tensors.begin(), tensors.end());
  d->buffer_ = ggml_backend_cpu_buffer_from_ptr(d->range_.base(), bytes);
  if (!d->buffer_) return fail(ErrorCode::does_not_fit, "[memory] expected memory for the names of tensors, got none");
  DQ_CHECK(put(device, d->buffer_, tensors, {0, tensors.size(), bytes}, "description"));
  return d;
}

DescribedTensors::~DescribedTensors() {
  if (buffer_) ggml_backend_buffer_free(buffer_);
}

Result<void> DescribedTensors::acquire(int) {
  return fail(ErrorCode::failed, "[memory] expected weights with values, got some that are only described");
}

}  // namespace danqing
