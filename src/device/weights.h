// A model's tensors on a device, by our names.
#pragma once
#include <cstdint>
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

struct StoredMatrix;

/// Where the values are while graphs run.
enum class Residency {
  whole,      ///< all of them on the device
  streamed,   ///< tensors without a group and the first groups stay; the other groups share two places, in turn
  described,  ///< nowhere: graphs can be built and measured, running one is an Error; no value is read
};

/// In which dtype weights are kept, and where. Vectors and convolution kernels are always f32.
struct WeightPolicy {
  /// f32, bf16, f16, or a quantised type; empty = as stored (types that the device cannot multiply: bf16. Our kernels
  /// on the CPU multiply FP8 and scaled values too, ggml does not). Plain ggml on the CPU (CpuKernels::ggml) rounds the
  /// other factor of a product to the matrix' type (bf16, f16, 8-bit blocks), so f16 overflows on activations beyond
  /// 65504; our kernels widen the weights instead. A quantised type whose blocks do not divide a matrix' rows gives
  /// q8_0 for that matrix, or bf16 where that fails too.
  std::optional<DType> matrix;
  Residency residency = Residency::whole;
  /// Streamed: this many groups stay (fewer than 0: none). With at most two left over all stay, since two places would
  /// take no less.
  int resident_groups = 0;
};

/// What a set of weights takes under its policy's dtypes, whatever its residency.
struct WeightSizes {
  uint64_t total = 0;                  ///< on the device when whole, alignment included
  uint64_t fixed = 0;                  ///< of these, of tensors that belong to no group
  uint64_t stored_bytes = 0;           ///< in the files
  std::vector<uint64_t> groups;        ///< of total, by TensorSpec::group
  std::map<DType, uint64_t> by_dtype;  ///< of total, by kept dtype, without alignment
  /// Host memory that converting takes: while load() runs, and as long as streamed groups are converted. A CPU counts
  /// it as its own memory.
  uint64_t staging = 0;

  /// How many groups stay in fact.
  int resident(Residency residency, int resident_groups) const;
  /// Exactly what Device::allocated() has grown by when load() returns, for its place, its charges and its padding.
  uint64_t device_bytes(Residency residency, int resident_groups) const;
  /// And the most it grows by before load() returns.
  uint64_t loading_bytes(Residency residency, int resident_groups) const;

  /// A group's share of a place that groups take turns in.
  struct Turn {
    std::vector<uint64_t> buffers;  ///< sizes of the buffers that copied tensors take
    uint64_t mapped = 0, staging = 0;
  };
  Turn largest_turn(size_t first) const;  ///< what one place for the groups from `first` on takes
  std::vector<Turn> turns;                ///< by group
  uint64_t fixed_staging = 0;             ///< of tensors without a group
  bool staging_on_device = false;         ///< the device is the CPU
};

using LoadProgress = std::function<bool(uint64_t bytes_done, uint64_t bytes_total)>;  ///< false = cancel

class Weights {
 public:
  /// Places every bound tensor. On the CPU a tensor kept in its stored dtype is used where it is mapped, without a
  /// copy. Conversions go in bounded pieces on Device::threads() threads. Errors: does_not_fit, cancelled, usage
  /// (policy), bad_input (values that the kept dtype cannot hold; a file that became shorter).
  static Result<std::shared_ptr<const Weights>> load(std::shared_ptr<Device> device, const BoundTensors& bound,
                                                     const WeightPolicy& policy, const LoadProgress& progress = {});
  /// The tensor; never null for a required spec (asking for an unknown name is a programming error and asserts).
  ggml_tensor* at(std::string_view name) const;
  ggml_tensor* find(std::string_view name) const;          ///< null if absent
  uint64_t bytes() const { return bytes_; }                ///< of all tensors (mapped ones counted too)
  uint64_t mapped_bytes() const { return mapped_bytes_; }  ///< of these, used where the file is mapped
  const WeightSizes& sizes() const { return sizes_; }
  Device& device() const { return *device_; }
  ~Weights();

 private:
  friend class WeightLoader;
  Weights();
  std::shared_ptr<Device> device_;
  std::shared_ptr<const TensorSource> mapped_;  ///< keeps the mapping alive
  ggml_context* ctx_ = nullptr;
  std::map<std::string, ggml_tensor*, std::less<>> by_name_;
  uint64_t bytes_ = 0, mapped_bytes_ = 0;
  WeightSizes sizes_;
  Device::Charge mapped_charge_;
  std::vector<Device::Buffer> buffers_;
  std::vector<ggml_backend_buffer_t> views_;             ///< wrappers around memory that is not ours
  std::vector<std::shared_ptr<StoredMatrix>> matrices_;  ///< what tensors of ctx_ point to
  std::unique_ptr<PagedTensors> paged_;                  ///< unless all values stay
};

/// In which dtype a tensor of this use, shape and stored dtype is kept on the device under a policy. Error usage if the
/// policy names a type for which there is no conversion. The planner of memory uses it with headers alone.
Result<DType> kept_dtype(const Device& device, const TensorSpec& spec, DType stored, const WeightPolicy& policy);

}  // namespace danqing
