#include "pipeline/family.h"

#include <algorithm>

namespace danqing {
namespace {

bool has_quantized(const TensorSource& source) {
  for (const TensorInfo& t : source.tensors())
    if (is_quantized(t.dtype)) return true;
  return false;
}

constexpr uint64_t kSmallModel = uint64_t{4} << 30;  // bytes in f32; beyond, twice the bytes are twice the time

/// The dtype that holds most of the component's bytes.
DType main_dtype(const TensorSource& source) {
  uint64_t bytes[kDTypeCount] = {};
  for (const TensorInfo& t : source.tensors()) bytes[static_cast<int>(t.dtype)] += t.bytes;
  int best = static_cast<int>(DType::f32);
  for (int i = 0; i < kDTypeCount; ++i)
    if (bytes[i] > bytes[best]) best = i;
  return static_cast<DType>(best);
}

}  // namespace

WeightPolicy weight_policy(const ComponentFiles& files, ComputeType type) {
  if (type == ComputeType::f32) return {DType::f32};
  if (has_quantized(*files.source)) return {};  // quantised blocks stay as they are; plain tensors beside them too
  return {type == ComputeType::f16 ? DType::f16 : DType::bf16};
}

ComputeType resolve_compute_type(ComputeType asked, const Checkpoint& checkpoint, const DeviceInfo& device) {
  if (asked != ComputeType::automatic) return asked;
  uint64_t f32_bytes = 0;
  for (const auto& [role, files] : checkpoint.components)
    for (const TensorInfo& t : files.source->tensors()) f32_bytes += 4 * static_cast<uint64_t>(element_count(t.shape));
  const uint64_t memory = device.memory_free ? device.memory_free : device.memory_total;
  if (f32_bytes <= std::min(memory / 4, kSmallModel)) return ComputeType::f32;  // exactness costs little here
  const ComponentFiles* transformer = checkpoint.find("transformer");
  const DType stored = transformer ? main_dtype(*transformer->source) : DType::bf16;
  if (stored == DType::f32 || stored == DType::f64) return ComputeType::f32;
  return stored == DType::f16 ? ComputeType::f16 : ComputeType::bf16;
}

int64_t longest(const Workload& work) {
  int64_t most = 1;
  for (const auto* lengths : {&work.text_tokens, &work.negative_tokens})
    for (int64_t n : *lengths) most = std::max(most, n);
  return most;
}

WorkType work_type(ComputeType type) {
  switch (type) {
    case ComputeType::bf16: return WorkType::bf16;
    case ComputeType::f16: return WorkType::f16;
    case ComputeType::automatic:
    case ComputeType::f32: break;
  }
  return WorkType::f32;
}

}  // namespace danqing
