// A model's tensors on a device, by our names.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "checkpoint/tensor_spec.h"
#include "device/device.h"

namespace danqing {

/// In which dtype weights are kept. Vectors are always f32. Convolution kernels: what the device's convolution takes.
struct WeightPolicy {
  std::optional<DType> matrix;   ///< f32, bf16, f16, or a quantised type; empty = as stored (FP8, F64, ints: bf16)
};

using LoadProgress = std::function<bool(uint64_t bytes_done, uint64_t bytes_total)>;  ///< false = cancel

class Weights {
 public:
  /// Places every bound tensor. On the CPU a tensor kept in its stored dtype is used where it is mapped, without a copy.
  static Result<std::shared_ptr<const Weights>> load(std::shared_ptr<Device> device, const BoundTensors& bound,
                                                     const WeightPolicy& policy, const LoadProgress& progress = {});
  /// The tensor; never null for a required spec (asking for an unknown name is a programming error and asserts).
  ggml_tensor* at(std::string_view name) const;
  ggml_tensor* find(std::string_view name) const;   ///< null if absent
  uint64_t bytes() const { return bytes_; }         ///< on the device (mapped ones counted too)
  Device& device() const { return *device_; }
  ~Weights();

 private:
  friend class WeightLoader;
  Weights() = default;
  std::shared_ptr<Device> device_;
  std::shared_ptr<const TensorSource> mapped_;      ///< keeps the mapping alive
  ggml_context* ctx_ = nullptr;
  std::vector<Device::Buffer> buffers_;
  std::vector<ggml_backend_buffer_t> views_;        ///< wrappers around mapped memory
  std::unordered_map<std::string, ggml_tensor*> by_name_;
  uint64_t bytes_ = 0;
};

}  // namespace danqing
