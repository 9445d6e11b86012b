// An opened set of named tensors: one safetensors file, a sharded directory with its index, or one GGUF file.
// Role: everything about a foreign file is checked here, once, before anybody reads data: header sizes, JSON types,
// dtypes, byte spans against the file's length, overlaps, duplicates, shards against the index.
// Thread rule: immutable after open(); any number of threads may read.
#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/dtype.h"
#include "base/file.h"
#include "base/tensor.h"

namespace danqing {

struct TensorDelta;
struct TensorScale;

struct TensorInfo {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;          ///< torch order (GGUF's reversed sizes are already turned round), 4-bit pairs already counted
  uint32_t file = 0;    ///< index into TensorSource::files()
  uint64_t offset = 0;  ///< from the start of the file
  uint64_t bytes = 0;
  std::shared_ptr<const TensorScale> scale;  ///< null: the stored values are the weights
  /// Not 0: a matrix whose heads of this many rows are stored with their two halves interleaved (llama.cpp's order of q
  /// and k): stored row 2i + j of a head is row j * head/2 + i of the weights.
  int64_t interleaved_head = 0;
  std::shared_ptr<const TensorDelta> delta;  ///< an adapter's change, added to the weights; null: none
  bool plain() const { return !scale && !delta && interleaved_head == 0; }  ///< the bytes are the weights as they stand
};

/// Numbers that a file keeps beside a tensor: a weight is its stored value times its scale times `global`.
struct TensorScale {
  enum class Layout {
    tensor,  ///< one number
    rows,    ///< one a row
    grid,    ///< one a block of block_rows x block_columns, row-major
    tiles,   ///< a grid with block_rows 1 in the order of cuBLAS: tiles of 128 rows x 4 blocks, padded to whole tiles
  };
  Layout layout = Layout::tensor;
  int64_t block_rows = 1, block_columns = 1;
  TensorInfo values;
  std::optional<TensorInfo> global;  ///< a second factor for the whole tensor (NVFP4)
};

class TensorSource {
 public:
  enum class Format { safetensors, gguf };

  /// `path`: a .safetensors or .gguf file (recognised by content, not by name), an index json, or a directory holding
  /// one model (`*.safetensors.index.json` + shards, or exactly one weights file).
  /// Scales are folded into the tensors that they belong to, and llama.cpp's tensor names become transformers' ones.
  /// Errors (bad_input): missing, truncated, Git LFS pointer, HTML page, unknown dtype, bad spans, shard problems,
  /// missing or wrong scales.
  static Result<std::shared_ptr<const TensorSource>> open(const std::filesystem::path& path);

  /// For synthetic weights and tests: tensors that live in memory owned by the source.
  static std::shared_ptr<const TensorSource> from_memory(std::vector<TensorInfo> tensors,
                                                         std::vector<std::byte> storage);

  /// The same files with changes hung onto tensors, by name.
  static std::shared_ptr<const TensorSource> with_deltas(
      const TensorSource& source, const std::map<std::string, std::shared_ptr<const TensorDelta>>& deltas);

  Format format() const { return format_; }
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  const TensorInfo* find(std::string_view name) const;
  /// The stored bytes, mapped; valid while this source lives.
  std::span<const std::byte> bytes(const TensorInfo& t) const;
  const std::vector<std::filesystem::path>& files() const { return files_; }
  bool in_files() const { return !maps_.empty(); }  ///< bytes() lie in mapped files, not in memory of the source
  /// safetensors `__metadata__`, or GGUF key/values as text (arrays shortened).
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  friend class SourceBuilder;
  TensorSource() = default;
  Format format_ = Format::safetensors;
  std::filesystem::path path_;
  std::vector<std::filesystem::path> files_;
  std::vector<std::shared_ptr<const MappedFile>> maps_;
  std::vector<std::byte> storage_;
  std::vector<TensorInfo> tensors_;
  std::unordered_map<std::string_view, size_t> by_name_;
  std::map<std::string, std::string> metadata_;
};

/// Widens plain values and packed 4-bit floats to f32. Sizes must agree. f64, i64.. are rounded to f32.
/// ggml's block types are decoded by device/dequantize.h.
Result<void> decode_f32(DType dtype, std::span<const std::byte> stored, std::span<float> out);
/// Whole tensor as f32, scaled (no types of ggml).
Result<Tensor> read_f32(const TensorSource& source, std::string_view name);
/// Integer tensor (i32, i64, u8, ...) as int64, for token ids and lengths.
Result<std::vector<int64_t>> read_integers(const TensorSource& source, std::string_view name);

}  // namespace danqing
