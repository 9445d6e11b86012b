#include "device/weights.h"

#include <algorithm>
#include <cassert>
#include <numeric>

#include "base/try.h"
#include "device/placement.h"
#include "device/stored_matrix.h"
#include "device/weight_items.h"
#include "device/weight_stream.h"

namespace danqing {
namespace {

ggml_type ggml_type_of(DType t) { return static_cast<ggml_type>(traits(t).ggml_type); }

/// Whether the device multiplies activations with matrices of this type.
bool multiplies(const Device& device, DType t) {
  if (traits(t).ggml_type < 0 || traits(t).ggml_type >= GGML_TYPE_COUNT) return false;
  if (t != DType::f32 && t != DType::f16 && t != DType::bf16 && !is_quantized(t)) return false;
  ggml_context* ctx = tensor_context(3);
  const int64_t k = 256;
  const bool yes =
      ggml_backend_supports_op(device.backend(), ggml_mul_mat(ctx, ggml_new_tensor_2d(ctx, ggml_type_of(t), k, 32),
                                                              ggml_new_tensor_2d(ctx, GGML_TYPE_F32, k, 32)));
  ggml_free(ctx);
  return yes;
}

bool blocks_fit(DType t, const Shape& shape) {
  return traits(t).block_elements == 1 || (!shape.empty() && shape.back() % traits(t).block_elements == 0);
}

Result<void> check_policy(const WeightPolicy& policy) {
  if (!policy.matrix) return {};
  const DType t = *policy.matrix;
  if (t == DType::f32 || t == DType::bf16 || t == DType::f16) return {};
  if (is_quantized(t) && !ggml_quantize_requires_imatrix(ggml_type_of(t))) return {};
  return usage_error("[weights] expected f32, bf16, f16 or a type that quantises without an importance matrix, got {}",
                     name(t));
}

}  // namespace

Result<DType> kept_dtype(const Device& device, const TensorSpec& spec, DType stored, const WeightPolicy& policy) {
  if (spec.use == WeightUse::vector || spec.use == WeightUse::kernel) return DType::f32;
  DQ_CHECK(check_policy(policy));
  DType t = policy.matrix.value_or(stored);
  if (policy.matrix && !blocks_fit(t, spec.shape)) t = DType::q8_0;
  if (!blocks_fit(t, spec.shape) || !multiplies(device, t)) t = DType::bf16;
  if (!multiplies(device, t)) t = DType::f16;
  return t;
}

int WeightSizes::resident(Residency residency, int resident_groups) const {
  const auto all = static_cast<int>(groups.size());
  if (residency != Residency::streamed) return all;
  const int stay = std::clamp(resident_groups, 0, all);
  return all - stay <= 2 ? all : stay;
}

uint64_t WeightSizes::device_bytes(Residency residency, int resident_groups) const {
  if (residency == Residency::described) return 0;
  const auto stay = static_cast<size_t>(resident(residency, resident_groups));
  if (stay == groups.size()) return total;
  const Turn place = largest_turn(stay);
  const uint64_t buffers = std::accumulate(place.buffers.begin(), place.buffers.end(), uint64_t{0});
  return std::accumulate(groups.begin(), groups.begin() + static_cast<std::ptrdiff_t>(stay), fixed) +
         2 * (buffers + place.mapped) + (staging_on_device ? place.staging : 0);
}

uint64_t WeightSizes::loading_bytes(Residency residency, int resident_groups) const {
  const uint64_t after = device_bytes(residency, resident_groups);
  if (!staging_on_device || residency == Residency::described) return after;
  const auto stay = static_cast<size_t>(resident(residency, resident_groups));
  uint64_t now = fixed_staging;
  for (size_t g = 0; g < stay; ++g) now = std::max(now, turns[g].staging);
  const uint64_t later = largest_turn(stay).staging;
  return after - later + std::max(now, later);
}

WeightSizes::Turn WeightSizes::largest_turn(size_t first) const {
  Turn largest;
  for (size_t g = first; g < turns.size(); ++g) {
    const Turn& t = turns[g];
    largest.buffers.resize(std::max(largest.buffers.size(), t.buffers.size()));
    for (size_t i = 0; i < t.buffers.size(); ++i) largest.buffers[i] = std::max(largest.buffers[i], t.buffers[i]);
    largest.mapped = std::max(largest.mapped, t.mapped);
    largest.staging = std::max(largest.staging, t.staging);
  }
  return largest;
}

class WeightLoader {
 public:
  WeightLoader(Weights& w, const BoundTensors& bound, const WeightPolicy& policy, const LoadProgress& progress)
      : w_(w), bound_(bound), policy_(policy), progress_(progress) {}

  Result<void> run() {
    w_.ctx_ = tensor_context(bound_.tensors.size());
    if (!w_.ctx_)
      return fail(ErrorCode::does_not_fit, "[weights] expected memory for {} tensor names", bound_.tensors.size());
    for (const BoundTensor& b : bound_.tensors) {
      if (!b.stored) continue;
      DQ_TRY(WeightItem item, describe(*w_.device_, w_.ctx_, *bound_.source, b, policy_));
      w_.by_name_[item.name] = item.tensor;
      w_.bytes_ += ggml_nbytes(item.tensor) + item.factors;
      if (item.matrix) w_.matrices_.push_back(item.matrix);
      if (item.mapped) w_.mapped_bytes_ += ggml_nbytes(item.tensor);
      items_.push_back(std::move(item));
    }
    w_.sizes_ = sizes_of(*w_.device_, items_);
    if (policy_.residency == Residency::described) return place_nowhere();
    return load();
  }

 private:
  Result<void> load() {
    Device& device = *w_.device_;
    const WeightSizes& sizes = w_.sizes_;
    const int stay = sizes.resident(policy_.residency, policy_.resident_groups);
    std::vector<WeightItem> staying, turning;
    uint64_t mapped = 0;
    for (WeightItem& i : items_) {
      mapped += i.factors;
      if (i.matrix) DQ_CHECK(read_factors(*i.matrix, *bound_.source, *i.stored));
      (i.group < stay ? staying : turning).push_back(std::move(i));
    }
    std::vector<ggml_tensor*> copied;
    for (const WeightItem& i : staying) {
      total_ += i.stored->bytes;
      if (i.mapped)
        mapped += i.bytes;
      else
        copied.push_back(i.tensor);
    }
    DQ_TRY(w_.mapped_charge_, device.charge(mapped, "weights"));
    DQ_TRY(w_.buffers_, place(device, copied, "weights"));
    for (const Device::Buffer& b : w_.buffers_)
      ggml_backend_buffer_set_usage(b.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    if (!turning.empty()) {
      DQ_TRY(w_.paged_, WeightStream::create(device, bound_.source, std::move(turning), stay));
    }
    Device::Charge staging;
    if (device.is_cpu()) {
      const uint64_t more = sizes.loading_bytes(policy_.residency, policy_.resident_groups) -
                            sizes.device_bytes(policy_.residency, policy_.resident_groups);
      DQ_TRY(staging, device.charge(more, "conversion of weights"));
    }
    for (const WeightItem& i : staying) {
      if (!i.mapped) continue;
      ggml_backend_buffer_t view = wrap_mapped(device, *bound_.source, i);
      if (!view) return fail(ErrorCode::does_not_fit, "[weights] expected memory for a tensor's name, got none");
      w_.views_.push_back(view);
      done_ += i.stored->bytes;
    }
    DQ_CHECK(report(0));
    for (const WeightItem& i : staying) {
      if (i.mapped) continue;
      const uint64_t before = done_;
      DQ_CHECK(fill(device, *bound_.source, i, [&](double share) {
        return report(before + static_cast<uint64_t>(share * static_cast<double>(i.stored->bytes)));
      }));
      done_ = before + i.stored->bytes;
    }
    return {};
  }

  Result<void> place_nowhere() {
    std::vector<ggml_tensor*> tensors;
    for (const WeightItem& i : items_) tensors.push_back(i.tensor);
    DQ_TRY(w_.paged_, DescribedTensors::create(*w_.device_, tensors));
    return {};
  }

  Result<void> report(uint64_t done) {
    if (progress_ && !progress_(std::max(done, done_), total_))
      return fail(ErrorCode::cancelled, "[weights] cancelled");
    return {};
  }

  Weights& w_;
  const BoundTensors& bound_;
  const WeightPolicy& policy_;
  const LoadProgress& progress_;
  std::vector<WeightItem> items_;
  uint64_t done_ = 0, total_ = 0;
};

Result<std::shared_ptr<const Weights>> Weights::load(std::shared_ptr<Device> device, const BoundTensors& bound,
                                                     const WeightPolicy& policy, const LoadProgress& progress) {
  DQ_CHECK(check_policy(policy));
  std::shared_ptr<Weights> w(new Weights());
  w->device_ = std::move(device);
  w->mapped_ = bound.source;
  DQ_CHECK(WeightLoader(*w, bound, policy, progress).run());
  return std::shared_ptr<const Weights>(std::move(w));
}

Weights::Weights() = default;

Weights::~Weights() {
  paged_.reset();
  buffers_.clear();
  for (ggml_backend_buffer_t v : views_) unwrap_mapped(*mapped_, v);
  if (ctx_) ggml_free(ctx_);
}

ggml_tensor* Weights::find(std::string_view name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : it->second;
}

ggml_tensor* Weights::at(std::string_view name) const {
  ggml_tensor* t = find(name);
  assert(t != nullptr);
  return t;
}

}  // namespace danqing
