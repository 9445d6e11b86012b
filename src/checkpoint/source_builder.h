// How the readers of the file formats fill a TensorSource.
#pragma once
#include <memory>
#include <string>

#include "checkpoint/tensor_source.h"

namespace danqing {

class SourceBuilder {
 public:
  SourceBuilder(std::filesystem::path path, TensorSource::Format format);
  /// The files and metadata of `base`, without its tensors.
  explicit SourceBuilder(const TensorSource& base);
  /// The file's number for TensorInfo::file.
  uint32_t add_file(std::shared_ptr<const MappedFile> map);
  void add(TensorInfo t) { source_->tensors_.push_back(std::move(t)); }
  void add_metadata(std::string key, std::string value) { source_->metadata_[std::move(key)] = std::move(value); }
  void set_storage(std::vector<std::byte> bytes) { source_->storage_ = std::move(bytes); }
  /// Error (bad_input): two tensors of one name, naming the file or both files.
  Result<std::shared_ptr<const TensorSource>> finish();

 private:
  std::shared_ptr<TensorSource> source_;
};

/// The formats, each reading one already mapped file into `out` as its file number `file`.
Result<void> read_safetensors(const MappedFile& map, uint32_t file, SourceBuilder& out);
/// The same from the first bytes of a file of `file_size` bytes, at least its header: for a file that is still
/// elsewhere.
Result<void> read_safetensors(std::span<const std::byte> bytes, uint64_t file_size, const std::string& where,
                              uint32_t file, SourceBuilder& out);
/// How many bytes that header is, from the first 8 of them.
Result<uint64_t> safetensors_header_bytes(std::span<const std::byte> bytes, uint64_t file_size,
                                          const std::string& where);
Result<void> read_gguf(const MappedFile& map, uint32_t file, SourceBuilder& out);
/// "X.safetensors.index.json" and its shards.
Result<std::shared_ptr<const TensorSource>> open_sharded(const std::filesystem::path& index);
/// What the stored tensors mean: llama.cpp's names translated, scales folded into their tensors, markers left out.
/// Error (bad_input): a scale that is missing or has a wrong shape, a quantisation that is not known here.
Result<std::shared_ptr<const TensorSource>> interpret(std::shared_ptr<const TensorSource> source);
/// The parts of interpret().
Result<void> translate_llama_names(std::vector<TensorInfo>& tensors, const std::map<std::string, std::string>& metadata,
                                   const std::string& where);
Result<void> fold_scales(std::vector<TensorInfo>& tensors, const TensorSource& source);
/// The index or weights file that a model directory means. Errors (bad_input): none, several without an index,
/// shards without an index, only pickles.
Result<std::filesystem::path> choose_weights(const std::filesystem::path& directory);

}  // namespace danqing
