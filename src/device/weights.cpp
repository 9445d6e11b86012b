#include "device/weights.h"

#include <cassert>

#include "base/try.h"
#include "device/convert.h"
#include "device/placement.h"

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
  if (spec.use != WeightUse::matrix) return DType::f32;
  DQ_CHECK(check_policy(policy));
  DType t = policy.matrix.value_or(stored);
  if (policy.matrix && !blocks_fit(t, spec.shape)) t = DType::q8_0;
  if (!blocks_fit(t, spec.shape) || !multiplies(device, t)) t = DType::bf16;
  if (!multiplies(device, t)) t = DType::f16;
  return t;
}

class WeightLoader {
 public:
  WeightLoader(Weights& w, const BoundTensors& bound, const WeightPolicy& policy, const LoadProgress& progress)
      : w_(w), bound_(bound), policy_(policy), progress_(progress) {}

  Result<void> run() {
    for (const BoundTensor& b : bound_.tensors)
      if (b.stored) total_ += b.stored->bytes;
    w_.ctx_ = tensor_context(bound_.tensors.size());
    if (!w_.ctx_)
      return fail(ErrorCode::does_not_fit, "[weights] expected memory for {} tensor names", bound_.tensors.size());
    for (const BoundTensor& b : bound_.tensors)
      if (b.stored) DQ_CHECK(describe(b));
    DQ_TRY(w_.buffers_, place(*w_.device_, to_place_, "weights"));
    for (const Device::Buffer& b : w_.buffers_)
      ggml_backend_buffer_set_usage(b.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    DQ_CHECK(report(0));
    for (const Pending& p : pending_) DQ_CHECK(fill(p));
    return {};
  }

 private:
  struct Pending {
    const BoundTensor* bound;
    DType kept;
    ggml_tensor* tensor;
  };

  Result<void> describe(const BoundTensor& b) {
    // Scales are multiplied in, which makes plain values of whatever is stored.
    const DType stored = b.stored->scale ? DType::bf16 : b.stored->dtype;
    DQ_TRY(const DType kept, kept_dtype(*w_.device_, b.spec, stored, policy_));
    DQ_TRY(ggml_tensor * t, new_tensor(w_.ctx_, ggml_type_of(kept), b.spec.shape, b.spec.name));
    if (element_count(b.stored->shape) != element_count(b.spec.shape) ||
        bound_.source->bytes(*b.stored).size() != b.stored->bytes)
      return bad_input("[weights] expected {} {} in the file, got {}", b.spec.name, to_string(b.spec.shape),
                       to_string(b.stored->shape));
    w_.by_name_[b.spec.name] = t;
    w_.bytes_ += ggml_nbytes(t);
    if (kept == b.stored->dtype && b.stored->plain() && use_mapped(bound_.source->bytes(*b.stored), t)) {
      w_.mapped_bytes_ += ggml_nbytes(t);
      done_ += b.stored->bytes;
      return {};
    }
    to_place_.push_back(t);
    pending_.push_back({&b, kept, t});
    return {};
  }

  /// ggml wants the buffer aligned, not each tensor in it; its kernels load unaligned vectors but aligned elements.
  bool use_mapped(std::span<const std::byte> stored, ggml_tensor* t) {
    if (!w_.device_->is_cpu() || stored.size() != ggml_nbytes(t)) return false;
    const size_t element = t->type == GGML_TYPE_F32 ? 4 : 2;
    const auto address = reinterpret_cast<uintptr_t>(stored.data());
    if (address % element != 0) return false;
    const size_t lead = address % ggml_backend_buft_get_alignment(w_.device_->buffer_type());
    auto* base = const_cast<std::byte*>(stored.data()) - lead;  // only an address: nothing before is read
    ggml_backend_buffer_t view = ggml_backend_cpu_buffer_from_ptr(base, stored.size() + lead);
    if (!view) return false;
    ggml_backend_buffer_set_usage(view, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    w_.views_.push_back(view);
    return ggml_backend_tensor_alloc(view, t, base + lead) == GGML_STATUS_SUCCESS;
  }

  Result<void> fill(const Pending& p) {
    const TensorInfo& stored = *p.bound->stored;
    const uint64_t before = done_;
    const size_t size = ggml_nbytes(p.tensor);
    DQ_TRY(const StoredValues values, StoredValues::open(*bound_.source, stored, p.tensor->ne[0]));
    auto filled = convert(values, p.kept, {.threads = w_.device_->threads()},
                          [&](size_t offset, std::span<const std::byte> piece) -> Result<void> {
                            ggml_backend_tensor_set(p.tensor, piece.data(), offset, piece.size());
                            const double share = static_cast<double>(offset + piece.size()) / static_cast<double>(size);
                            return report(before + static_cast<uint64_t>(share * static_cast<double>(stored.bytes)));
                          });
    if (!filled && filled.error().code == ErrorCode::bad_input)
      return bad_input("[weights] {}: {}", p.bound->spec.name, filled.error().message);
    DQ_CHECK(filled);
    done_ = before + stored.bytes;
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
  std::vector<ggml_tensor*> to_place_;
  std::vector<Pending> pending_;
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

Weights::~Weights() {
  buffers_.clear();
  for (ggml_backend_buffer_t v : views_) ggml_backend_buffer_free(v);
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
