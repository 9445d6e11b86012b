// Checkpoint files made in memory, well-formed or damaged on purpose.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace danqing::testing {

template <class T>
std::string le(T v) {
  return std::string(reinterpret_cast<const char*>(&v), sizeof v);
}

/// Header length, header, data.
std::string safetensors(std::string_view header, std::string_view data = "");
/// One F32 tensor of zeros for each name, [2, 3].
std::string safetensors_of(const std::vector<std::string>& names);

/// A safetensors file of several tensors.
class Safetensors {
 public:
  /// `data` holds the tensor's bytes; its length is not checked here.
  void add(std::string_view name, std::string_view dtype, std::string_view shape, std::string_view data);
  void metadata(std::string_view json) { metadata_ = json; }  ///< {"key": "value"}
  std::string bytes() const;

 private:
  std::string entries_, data_, metadata_;
};

/// GGUF text: u64 length and bytes.
std::string gguf_text(std::string_view s);
/// Key, type number and raw value.
std::string gguf_pair(std::string_view key, uint32_t type, std::string_view value);
/// Name, sizes in ggml's order (fastest first), type number, offset.
std::string gguf_tensor(std::string_view name, const std::vector<uint64_t>& sizes, uint32_t type, uint64_t offset);

struct Gguf {
  std::string magic = "GGUF";
  uint32_t version = 3;
  std::vector<std::string> pairs, tensors;
  std::string data;
  uint64_t tensor_count = UINT64_MAX, pair_count = UINT64_MAX;  ///< UINT64_MAX = the true number
  uint64_t alignment = 32;
  std::string bytes() const;
};

/// Writes `bytes` as `directory / name` (folders are made) and returns the path.
std::filesystem::path put(const std::filesystem::path& directory, std::string_view name, std::string_view bytes);

}  // namespace danqing::testing
