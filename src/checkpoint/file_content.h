// What a file really is, by its first bytes, so that the wrong file gets the right message.
#pragma once
#include <cstddef>
#include <span>
#include <string_view>

namespace danqing {

enum class FileContent {
  safetensors,
  gguf,
  json,
  picture,
  empty,
  lfs_pointer,
  html,
  zip,
  pickle,
  archive,
  old_ggml,
  text,
  unknown,
};

FileContent file_content(std::span<const std::byte> bytes);

/// For everything that holds no tensors we can read: what it is and what to do about it, e.g. "a Git LFS pointer, not
/// the weights themselves; fetch them with `git lfs pull`".
std::string_view describe(FileContent content);

}  // namespace danqing
