// Tensors that keep their values from one graph run to the next: the key and value caches of a language model.
#pragma once
#include <ggml.h>

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/tensor.h"
#include "device/device.h"

namespace danqing {

/// Owned by whoever made it; must outlive every graph that uses its tensors. Usable in any number of graphs of its
/// device, one running at a time. Write with nn::store_rows (or ggml_cpy and Graph::require), read like any tensor.
class State {
 public:
  struct Entry {
    std::string name;
    DType dtype = DType::f32;  ///< f32, f16, bf16 or i32
    Shape shape;               ///< torch order, at most 4 axes, every size >= 1
  };
  /// All zeros. Errors: does_not_fit; `what` names the use in messages ("key/value cache").
  static Result<std::shared_ptr<State>> create(std::shared_ptr<Device> device, const std::vector<Entry>& entries,
                                               std::string_view what);
  /// The same tensors without memory: for graphs that are only measured. Running one is an Error.
  static Result<std::shared_ptr<State>> describe(std::shared_ptr<Device> device, const std::vector<Entry>& entries);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ggml_tensor* at(std::string_view name) const;  ///< an unknown name is a programming error and asserts
  uint64_t bytes() const { return bytes_; }
  uint64_t placed_bytes() const { return placed_bytes_; }  ///< what the device counts for them, alignment included
  void clear();                                            ///< zeros everything

 private:
  State() = default;
  Result<std::vector<ggml_tensor*>> make(const std::vector<Entry>& entries, std::string_view what);
  std::shared_ptr<Device> device_;
  ggml_context* ctx_ = nullptr;
  std::vector<Device::Buffer> buffers_;
  std::map<std::string, ggml_tensor*, std::less<>> by_name_;
  std::unique_ptr<class DescribedTensors> described_;
  uint64_t bytes_ = 0, placed_bytes_ = 0;
};

}  // namespace danqing
