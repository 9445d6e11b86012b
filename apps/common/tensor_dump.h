// --dump-tensors: every named intermediate of a run into one safetensors file.
#pragma once
#include <filesystem>
#include <memory>

#include "checkpoint/safetensors_writer.h"
#include "danqing/engine.h"

namespace danqing::app {

class TensorDump {
 public:
  /// Makes the directory; the file is DIR/tensors.safetensors (replaced if it exists, when the run ends well).
  static Result<std::unique_ptr<TensorDump>> open(const std::filesystem::path& directory);
  DumpSink sink();
  /// Closes the file; the first error of any write comes here.
  Result<std::filesystem::path> finish();

 private:
  std::filesystem::path path_;
  std::unique_ptr<SafetensorsWriter> writer_;
  Result<void> status_;
};

}  // namespace danqing::app
