#include "device/state.h"

#include <cassert>

#include "base/try.h"
#include "device/placement.h"

namespace danqing {

Result<std::shared_ptr<State>> State::create(std::shared_ptr<Device> device, const std::vector<Entry>& entries,
                                             std::string_view what) {
  std::shared_ptr<State> s(new State());
  s->device_ = device;
  s->ctx_ = tensor_context(entries.size());
  if (!s->ctx_)
    return fail(ErrorCode::does_not_fit, "[memory] expected memory for {} tensors of the {}", entries.size(), what);
  std::vector<ggml_tensor*> tensors;
  for (const Entry& e : entries) {
    DQ_TRY(ggml_tensor * t, new_tensor(s->ctx_, static_cast<ggml_type>(traits(e.dtype).ggml_type), e.shape, e.name));
    s->by_name_.emplace(e.name, t);
    s->bytes_ += ggml_nbytes(t);
    tensors.push_back(t);
  }
  DQ_TRY(s->buffers_, place(*device, tensors, what));
  s->clear();
  return s;
}

State::~State() {
  buffers_.clear();
  if (ctx_) ggml_free(ctx_);
}

ggml_tensor* State::at(std::string_view name) const {
  const auto it = by_name_.find(name);
  assert(it != by_name_.end());
  return it->second;
}

void State::clear() {
  for (const Device::Buffer& b : buffers_) ggml_backend_buffer_clear(b.get(), 0);
}

}  // namespace danqing
