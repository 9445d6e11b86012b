// A model's tensors on a device, by our names.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/tensor_spec.h"
#include "device/device.h"

namespace danqing {

/// In which dtype weights are kept. Vectors and convolution kernels are always f32.
struct WeightPolicy {
  /// f32, bf16, f16, or a quantised type; empty = as stored (FP8, F64, ints and types that the device cannot multiply:
  /// bf16). Plain ggml on the CPU (CpuKernels::ggml) rounds the other factor of a product to the matrix' type (bf16, f16,
  /// 8-bit blocks), so f16 overflows on activations beyond 65504; our kernels widen the weights instead. A quantised type whose blocks do not divide a matrix'
  /// rows gives q8_0 for that matrix, or bf16 where that fails too.
  std::optional<DType> matrix;
};

using LoadProgress = std::function<bool(uint64_t bytes_done, uint64_t bytes_total)>;  ///< false = cancel

class Weights {
 public:
  /// Places every bound tensor. On the CPU a tensor kept in its stored dtype is used where it is mapped, without a
  /// copy. Conversions go in bounded pieces on Device::threads() threads. Errors: does_not_fit, cancelled, usage
  /// (policy).
  static Result<std::shared_ptr<const Weights>> load(std::shared_ptr<Device> device, const BoundTensors& bound,
                                                     const WeightPolicy& policy, const LoadProgress& progress = {});
  /// The tensor; never null for a required spec (asking for an unknown name is a programming error and asserts).
  ggml_tensor* at(std::string_view name) const;
  ggml_tensor* find(std::string_view name) const;          ///< null if absent
  uint64_t bytes() const { return bytes_; }                ///< on the device (mapped ones counted too)
  uint64_t mapped_bytes() const { return mapped_bytes_; }  ///< of these, used where the file is mapped
  Device& device() const { return *device_; }
  ~Weights();

 private:
  friend class WeightLoader;
  Weights() = default;
  std::shared_ptr<Device> device_;
  std::shared_ptr<const TensorSource> mapped_;  ///< keeps the mapping alive
  ggml_context* ctx_ = nullptr;
  std::vector<Device::Buffer> buffers_;
  std::vector<ggml_backend_buffer_t> views_;  ///< wrappers around mapped memory
  std::map<std::string, ggml_tensor*, std::less<>> by_name_;
  uint64_t bytes_ = 0, mapped_bytes_ = 0;
};

/// In which dtype a tensor of this use, shape and stored dtype is kept on the device under a policy. Error usage if the
/// policy names a type for which there is no conversion. The planner of memory uses it with headers alone.
Result<DType> kept_dtype(const Device& device, const TensorSpec& spec, DType stored, const WeightPolicy& policy);

}  // namespace danqing
