// What a set of weights consists of before it has memory, and one tensor's way from its file to its place. Between
// Weights and its stream; not for other layers.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "device/stored_matrix.h"
#include "device/weights.h"

namespace danqing {

struct WeightItem {
  std::string name;
  int group = -1;
  const TensorInfo* stored = nullptr;
  DType kept = DType::f32;
  ggml_tensor* tensor = nullptr;
  bool mapped = false;                   ///< its values are used where the file is mapped
  uint64_t bytes = 0;                    ///< of the device, alignment included unless mapped
  uint64_t conversion = 0;               ///< host memory while it is filled
  bool relaid = false;                   ///< packed 4-bit floats become blocks (fp4_blocks.h)
  std::shared_ptr<StoredMatrix> matrix;  ///< null: the tensor says everything
  uint64_t factors = 0;                  ///< bytes of matrix->scale; they always stay
};

/// Describes the tensor in `ctx`. Errors: bad_input (shapes, a file that does not hold it), usage (policy).
Result<WeightItem> describe(const Device& device, ggml_context* ctx, const TensorSource& source, const BoundTensor& b,
                            const WeightPolicy& policy);
WeightSizes sizes_of(const Device& device, const std::vector<WeightItem>& items);

/// Lets a tensor begin at its stored bytes. Null when the host has no memory for the wrapper.
ggml_backend_buffer_t wrap_mapped(const Device& device, const TensorSource& source, const WeightItem& item);

/// Frees the wrapper, and gives the pages back that the process holds although the file may stay open.
void unwrap_mapped(const TensorSource& source, ggml_backend_buffer_t wrapper);

/// Reads, converts and sets the values of a tensor that is not mapped. `progress` gets the share that is done.
/// Of a file, pages are read in shortly before they are needed and given back behind. Errors: bad_input, progress'.
Result<void> fill(const Device& device, const TensorSource& source, const WeightItem& item,
                  const std::function<Result<void>(double share)>& progress);

}  // namespace danqing
