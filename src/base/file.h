// Files: read-only mappings, whole reads with a limit, and writes that never leave a half file under the final name.
#pragma once
#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "danqing/result.h"

namespace danqing {

/// A file mapped read-only. Movable; the bytes stay valid while the object lives. Thread-safe for reading.
class MappedFile {
 public:
  static Result<std::shared_ptr<const MappedFile>> open(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }

 private:
  MappedFile() = default;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  std::filesystem::path path_;
};

/// The whole file as text; refuses more than `limit` bytes.
/// A pipe or device in place of a file is an error unless `pipes` says that it is welcome (it may block).
Result<std::string> read_text(const std::filesystem::path& path, size_t limit = size_t{256} << 20, bool pipes = false);

/// A file that grows beside its target and takes the target's name when it is whole; removed when it never is.
class PartFile {
 public:
  /// Error (failed): the folder does not exist or cannot be written to.
  static Result<PartFile> create(const std::filesystem::path& target);
  PartFile(PartFile&& other) noexcept;
  PartFile& operator=(PartFile&&) = delete;
  ~PartFile();
  Result<void> write(std::string_view bytes);
  /// `overwrite` false: an existing target is an error (checked atomically). Nothing may be written afterwards.
  Result<void> publish(bool overwrite);

 private:
  PartFile() = default;
  int fd_ = -1;
  std::filesystem::path part_, target_;
};

/// Writes beside the target and renames. `overwrite` false: an existing file is an error (checked atomically).
Result<void> write_file(const std::filesystem::path& path, std::string_view bytes, bool overwrite = true);

}  // namespace danqing
