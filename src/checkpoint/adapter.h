// LoRA adapters (Hu et al. 2021): files of low-rank changes, added to a model's matrices while they are read:
// W + weight * (alpha / rank) * B A. What lies on the device is a plain matrix, so a pass costs nothing more.
#pragma once
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/tensor_spec.h"

namespace danqing {

/// The change of one tensor: rows first_row ... of it get b a added. Immutable; any number of threads.
struct TensorDelta {
  struct Part {
    int64_t first_row = 0, rank = 0;
    std::vector<float> a;  ///< [rank, columns]
    std::vector<float> b;  ///< [rows, rank], every factor multiplied in
  };
  int64_t columns = 0;
  std::vector<Part> parts;

  /// Adds to values first ... first + values.size() - 1 of the tensor, counted row by row.
  void add(int64_t first, std::span<float> values) const;
};

class Adapter {
 public:
  /// A safetensors file with MODULE.lora_A.weight / .lora_B.weight (diffusers, peft; ".default" before ".weight" too)
  /// or MODULE.lora_down.weight / .lora_up.weight, MODULE.alpha (trainers, ComfyUI), prefixes of all of them, kohya's
  /// lora_unet_ with underscores. Errors (bad_input): another kind of adapter (DoRA, LoHa, LoKr, full differences),
  /// halves without each other, ranks that do not fit, nothing to add.
  static Result<std::shared_ptr<const Adapter>> open(const std::filesystem::path& file);

  struct Module {
    std::string name;  ///< as in the file, without the prefix
    Tensor a, b;       ///< [rank, in], [out, rank]
    float factor = 1;  ///< alpha / rank
  };
  const std::vector<Module>& modules() const { return modules_; }
  const std::filesystem::path& file() const { return file_; }

 private:
  Adapter() = default;
  std::filesystem::path file_;
  std::vector<Module> modules_;
};

struct AdapterUse {
  std::shared_ptr<const Adapter> adapter;
  float weight = 1;
};

/// Hangs the adapters onto the tensors that they change; `names` as for bind(). Query, key and value find each other
/// whether model and adapter keep them in one matrix or in three. Error (bad_input): a module that the model does not
/// have, or of another size.
Result<void> apply_adapters(BoundTensors& bound, std::span<const AdapterUse> adapters, const NameMap& names);

}  // namespace danqing
