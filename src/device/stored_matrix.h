// What our kernels know of a matrix beyond its ggml tensor: a dtype that ggml has no products for (FP8, scaled 8-bit
// integers: ggml sees bytes), factors that lie beside the values. Between Weights, which owns it, and the kernels.
#pragma once
#include <ggml.h>

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "checkpoint/scale_table.h"
#include "checkpoint/tensor_spec.h"

namespace danqing {

class Device;

struct StoredMatrix {
  DType type = DType::f32;  ///< of the values as they lie in memory
  bool scaled = false;
  bool by_rows = false;  ///< one factor a row, or for all: it can be multiplied onto finished sums
  ScaleTable scale;      ///< empty until the values are there

  /// W8A8: the scale of each row, found by `find` when it is asked for the first time. Any thread.
  const std::vector<float>& row_scales(const std::function<std::vector<float>()>& find) const;

 private:
  mutable std::once_flag once_;
  mutable std::vector<float> row_scales_;
};

/// Null where the tensor's ggml type says everything.
inline const StoredMatrix* stored_matrix(const ggml_tensor* t) { return static_cast<const StoredMatrix*>(t->extra); }

/// The dtype in which our kernels multiply a stored matrix although ggml cannot; empty where the usual ways serve.
/// Packed 4-bit floats become NVFP4 or MXFP4 blocks of the same values. From the header alone.
std::optional<DType> direct_dtype(const Device& device, const TensorSpec& spec, const TensorInfo& stored);
/// What is known of it before anything is read. `kept` as above, or the stored dtype of values without factors.
std::shared_ptr<StoredMatrix> describe_matrix(const TensorInfo& stored, DType kept);
/// Host memory for the factors.
uint64_t factor_bytes(const StoredMatrix& m, const TensorInfo& stored);
/// Reads the factors. Error (bad_input) as ScaleTable::read.
Result<void> read_factors(StoredMatrix& m, const TensorSource& source, const TensorInfo& stored);

}  // namespace danqing
