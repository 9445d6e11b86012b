// A checkpoint of any size without data: a safetensors file of zeros that takes no room on the disk. Weights that a
// device keeps as stored are only mapped, so graphs of true-size models can be measured on any machine.
#pragma once
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/json.h"
#include "checkpoint/tensor_spec.h"

namespace danqing::testing {

/// Matrices in bf16, all else in f32.
inline void write_sparse_checkpoint(const std::filesystem::path& path, const std::vector<TensorSpec>& specs) {
  Json header = Json::object();
  uint64_t offset = 0;
  for (const TensorSpec& s : specs) {
    const bool bf16 = s.use == WeightUse::matrix;
    const uint64_t end = offset + static_cast<uint64_t>(element_count(s.shape)) * (bf16 ? 2 : 4);
    header[s.name] = {{"dtype", bf16 ? "BF16" : "F32"}, {"shape", s.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = dump_json(header);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(&length), 8) << text;
  std::filesystem::resize_file(path, 8 + length + offset);
}

}  // namespace danqing::testing
