// One tensor file to another: streaming, all threads, nothing under the final name before it is whole.
#pragma once
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/json.h"
#include "checkpoint/tensor_writer.h"
#include "convert/plan.h"
#include "device/convert.h"

namespace danqing::app {

struct ConvertSettings {
  DType type = DType::q8_0;
  std::vector<TypeRule> rules;
  TensorSource::Format format = TensorSource::Format::gguf;
  int threads = 1;
  bool check = false;    ///< measure the error of every tensor
  bool dry_run = false;  ///< only plan
  bool overwrite = false;
  /// Bytes of the source done and in all, and the tensor at work; false cancels.
  std::function<bool(uint64_t, uint64_t, const std::string&)> progress;
};

/// {"input", "output", "format", "bytes_in", "bytes_out", "seconds", "types": {NAME: {"tensors", "bytes"}},
///  "tensors": [{"name", "from", "type", "shape", "bytes", "reason"?, "rel_l2"?, "max_abs"?}],
///  "worst"?: NAME, "rel_l2"?: of all tensors together}
/// Errors: usage (plan_types), bad_input (values that cannot be converted, named), cancelled, failed (the disk).
Result<Json> convert_file(const TensorSource& source, const std::filesystem::path& out, const ConvertSettings& settings,
                          std::vector<bool>& matched);

/// What the output says of itself, and its tensors in order.
OutputMetadata output_metadata(const TensorSource& source, const std::filesystem::path& out,
                               const std::vector<PlannedTensor>& plan, TensorSource::Format format, DType type);
std::vector<OutputTensor> output_tensors(const std::vector<PlannedTensor>& plan);

}  // namespace danqing::app
