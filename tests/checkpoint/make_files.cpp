#include "checkpoint/make_files.h"

#include <fmt/format.h>

#include <fstream>

namespace danqing::testing {

std::string safetensors(std::string_view header, std::string_view data) {
  return le<uint64_t>(header.size()) + std::string(header) + std::string(data);
}

std::string safetensors_of(const std::vector<std::string>& names) {
  std::string header = "{";
  for (size_t i = 0; i < names.size(); ++i)
    header += fmt::format(R"({}"{}":{{"dtype":"F32","shape":[2,3],"data_offsets":[{},{}]}})", i ? "," : "", names[i],
                          i * 24, (i + 1) * 24);
  return safetensors(header + "}", std::string(names.size() * 24, '\0'));
}

void Safetensors::add(std::string_view name, std::string_view dtype, std::string_view shape, std::string_view data) {
  entries_ += fmt::format(R"({}"{}":{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})", entries_.empty() ? "" : ",",
                          name, dtype, shape, data_.size(), data_.size() + data.size());
  data_ += data;
}

std::string Safetensors::bytes() const {
  const std::string front = metadata_.empty() ? "" : "\"__metadata__\":" + metadata_ + (entries_.empty() ? "" : ",");
  return safetensors("{" + front + entries_ + "}", data_);
}

std::string gguf_text(std::string_view s) { return le<uint64_t>(s.size()) + std::string(s); }

std::string gguf_pair(std::string_view key, uint32_t type, std::string_view value) {
  return gguf_text(key) + le(type) + std::string(value);
}

std::string gguf_tensor(std::string_view name, const std::vector<uint64_t>& sizes, uint32_t type, uint64_t offset) {
  std::string out = gguf_text(name) + le<uint32_t>(static_cast<uint32_t>(sizes.size()));
  for (uint64_t s : sizes) out += le(s);
  return out + le(type) + le(offset);
}

std::string Gguf::bytes() const {
  std::string out = magic + le(version) + le(tensor_count == UINT64_MAX ? tensors.size() : tensor_count) +
                    le(pair_count == UINT64_MAX ? pairs.size() : pair_count);
  for (const auto& p : pairs) out += p;
  for (const auto& t : tensors) out += t;
  while (out.size() % alignment != 0) out += '\0';
  return out + data;
}

std::filesystem::path put(const std::filesystem::path& directory, std::string_view name, std::string_view bytes) {
  const std::filesystem::path path = directory / name;
  std::filesystem::create_directories(path.parent_path());
  std::filesystem::remove(path);  // writing over a file makes some file systems flush it, which is slow
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

}  // namespace danqing::testing
