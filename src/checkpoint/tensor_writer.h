// Writes a safetensors or GGUF file in one pass: all tensors are known beforehand, their bytes follow in that order, in
// pieces of any size. The file appears under its name only when it is whole.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/file.h"
#include "checkpoint/tensor_source.h"

namespace danqing {

struct OutputTensor {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
};

/// safetensors: texts only. GGUF: text or u32.
using OutputMetadata = std::map<std::string, std::variant<std::string, uint32_t>>;

/// Where everything of an output file lies, before any data is there.
struct TensorLayout {
  std::string header;             ///< the file's first bytes
  std::vector<uint64_t> offsets;  ///< of each tensor's bytes, from the start of the file; zeros lie between them
  std::vector<uint64_t> bytes;    ///< of each tensor
  uint64_t file_bytes = 0;
};
/// Errors (usage): a dtype that the format does not have, rows that are no whole blocks, a name twice, a shape of more
/// than 2^63 bytes.
Result<TensorLayout> layout_tensors(TensorSource::Format format, const std::vector<OutputTensor>& tensors,
                                    const OutputMetadata& metadata);

class TensorWriter {
 public:
  /// Writes the header. Errors: as layout_tensors; (failed): the disk.
  static Result<TensorWriter> create(const std::filesystem::path& path, TensorSource::Format format,
                                     const std::vector<OutputTensor>& tensors, const OutputMetadata& metadata);
  /// The next bytes of the current tensor; the first tensor is current at first.
  Result<void> write(std::span<const std::byte> bytes);
  /// Goes on to the next tensor. Error (failed) when the current one did not get all its bytes.
  Result<void> next();
  /// After the last next(). `overwrite` as PartFile::publish.
  Result<void> finish(bool overwrite);
  uint64_t file_bytes() const { return file_bytes_; }  ///< of the whole file

 private:
  explicit TensorWriter(PartFile file) : file_(std::move(file)) {}
  PartFile file_;
  std::vector<uint64_t> bytes_;  ///< of each tensor
  size_t current_ = 0;
  uint64_t written_ = 0, alignment_ = 1, file_bytes_ = 0;
};

/// Bytes of a whole tensor; empty when the shape does not fit the dtype's blocks or memory.
std::optional<uint64_t> tensor_bytes(DType dtype, const Shape& shape);

}  // namespace danqing
