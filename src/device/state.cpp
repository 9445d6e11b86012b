#include "device/state.h"

#include <cassert>

#include "base/try.h"
#include "device/paged_tensors.h"
#include "device/placement.h"

namespace danqing {

Result<std::vector<ggml_tensor*>> State::make(const std::vector<Entry>& entries, std::string_view what) {
  ctx_ = tensor_context(entries.size());
  if (!ctx_)
    return fail(ErrorCode::does_not_fit, "[memory] expected memory for {} tensors of the {}", entries.size(), what);
  std::vector<ggml_tensor*> tensors;
  for (const Entry& e : entries) {
    DQ_TRY(ggml_tensor * t, new_tensor(ctx_, static_cast<ggml_type>(traits(e.dtype).ggml_type), e.shape, e.name));
    by_name_.emplace(e.name, t);
    bytes_ += ggml_nbytes(t);
    placed_bytes_ += danqing::placed_bytes(*device_, t);
    tensors.push_back(t);
  }
  return tensors;
}

Result<std::shared_ptr<State>> State::create(std::shared_ptr<Device> device, const std::vector<Entry>& entries,
                                             std::string_view what) {
  std::shared_ptr<State> s(new State());
  s->device_ = std::move(device);
  DQ_TRY(const std::vector<ggml_tensor*> tensors, s->make(entries, what));
  DQ_TRY(s->buffers_, place(*s->device_, tensors, what));
  s->clear();
  return s;
}

Result<std::shared_ptr<State>> State::describe(std::shared_ptr<Device> device, const std::vector<Entry>& entries) {
  std::shared_ptr<State> s(new State());
  s->device_ = std::move(device);
  DQ_TRY(const std::vector<ggml_tensor*> tensors, s->make(entries, "state"));
  DQ_TRY(s->described_, DescribedTensors::create(*s->device_, tensors));
  return s;
}

State::~State() {
  described_.reset();
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
