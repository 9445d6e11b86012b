// Writes a safetensors file tensor by tensor, in bounded memory: the data goes to a part file, the header is put before
// it at the end, and the result appears under its name only when it is whole.
#pragma once
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>

#include "base/dtype.h"
#include "base/json.h"
#include "base/tensor.h"

namespace danqing {

class SafetensorsWriter {
 public:
  static Result<std::unique_ptr<SafetensorsWriter>> create(const std::filesystem::path& path);
  ~SafetensorsWriter();  ///< removes the part file when finish() was not reached
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  /// bytes.size() must be that of shape and dtype; plain dtypes only. A name that was added before is an Error.
  Result<void> add(const std::string& name, DType dtype, const Shape& shape, std::span<const std::byte> bytes);
  void set_metadata(const std::string& key, const std::string& value) { metadata_[key] = value; }
  /// Writes header and data under the final name. An existing file is replaced.
  Result<void> finish();

 private:
  SafetensorsWriter() = default;
  std::filesystem::path path_, part_;
  std::FILE* data_ = nullptr;
  uint64_t offset_ = 0;
  Json header_ = Json::object();
  std::map<std::string, std::string> metadata_;
};

}  // namespace danqing
