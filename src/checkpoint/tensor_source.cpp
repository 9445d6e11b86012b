#include "checkpoint/tensor_source.h"

#include <cassert>

#include "base/text.h"
#include "base/try.h"
#include "checkpoint/file_content.h"
#include "checkpoint/source_builder.h"

namespace danqing {
namespace {

namespace fs = std::filesystem;

Result<std::shared_ptr<const TensorSource>> open_file(const fs::path& path) {
  DQ_TRY(std::shared_ptr<const MappedFile> map, MappedFile::open(path));
  const FileContent content = file_content(map->bytes());
  if (content == FileContent::json && path.extension() == ".json") return open_sharded(path);
  const bool gguf = content == FileContent::gguf;
  // Damaged beyond recognition but named so: the reader's own message says more.
  const bool named = content == FileContent::unknown && path.extension() == ".safetensors";
  if (!gguf && !named && content != FileContent::safetensors)
    return bad_input("[checkpoint] {}: expected a safetensors or GGUF file, got {}", path.string(), describe(content));
  SourceBuilder builder(path, gguf ? TensorSource::Format::gguf : TensorSource::Format::safetensors);
  const uint32_t file = builder.add_file(map);
  DQ_CHECK(gguf ? read_gguf(*map, file, builder) : read_safetensors(*map, file, builder));
  return builder.finish();
}

}  // namespace

Result<std::shared_ptr<const TensorSource>> TensorSource::open(const fs::path& path) {
  std::error_code ec;
  const fs::file_status status = fs::status(path, ec);
  if (!fs::exists(status)) return bad_input("[checkpoint] {}: no such file or directory", path.string());
  fs::path weights = path;
  if (fs::is_directory(status)) {
    DQ_TRY(weights, choose_weights(path));
  }
  DQ_TRY(std::shared_ptr<const TensorSource> stored, open_file(weights));
  return interpret(std::move(stored));
}

std::shared_ptr<const TensorSource> TensorSource::with_deltas(
    const TensorSource& source, const std::map<std::string, std::shared_ptr<const TensorDelta>>& deltas) {
  std::shared_ptr<TensorSource> s(new TensorSource(source));
  s->by_name_.clear();  // its keys lie in the other's tensors
  for (size_t i = 0; i < s->tensors_.size(); ++i) {
    TensorInfo& t = s->tensors_[i];
    s->by_name_.emplace(t.name, i);
    if (const auto it = deltas.find(t.name); it != deltas.end()) t.delta = it->second;
  }
  return s;
}

std::shared_ptr<const TensorSource> TensorSource::from_memory(std::vector<TensorInfo> tensors,
                                                              std::vector<std::byte> storage) {
  SourceBuilder builder("(memory)", Format::safetensors);
  for (TensorInfo& t : tensors) {
    assert(t.offset <= storage.size() && t.bytes <= storage.size() - t.offset);
    builder.add(std::move(t));
  }
  builder.set_storage(std::move(storage));
  auto source = builder.finish();
  assert(source.ok());
  return *source;
}

const TensorInfo* TensorSource::find(std::string_view name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : &tensors_[it->second];
}

std::span<const std::byte> TensorSource::bytes(const TensorInfo& t) const {
  const std::span<const std::byte> all = maps_.empty() ? std::span<const std::byte>(storage_) : maps_[t.file]->bytes();
  return all.subspan(t.offset, t.bytes);
}

SourceBuilder::SourceBuilder(fs::path path, TensorSource::Format format) : source_(new TensorSource) {
  source_->path_ = std::move(path);
  source_->format_ = format;
}

SourceBuilder::SourceBuilder(const TensorSource& base) : source_(new TensorSource) {
  source_->path_ = base.path_;
  source_->format_ = base.format_;
  source_->files_ = base.files_;
  source_->maps_ = base.maps_;
  source_->storage_ = base.storage_;
  source_->metadata_ = base.metadata_;
}

uint32_t SourceBuilder::add_file(std::shared_ptr<const MappedFile> map) {
  source_->files_.push_back(map->path());
  source_->maps_.push_back(std::move(map));
  return static_cast<uint32_t>(source_->files_.size() - 1);
}

Result<std::shared_ptr<const TensorSource>> SourceBuilder::finish() {
  TensorSource& s = *source_;
  // Names are keyed by views, so only now that the vector no longer moves.
  for (size_t i = 0; i < s.tensors_.size(); ++i) {
    const auto [it, fresh] = s.by_name_.emplace(s.tensors_[i].name, i);
    if (fresh) continue;
    const TensorInfo &a = s.tensors_[it->second], &b = s.tensors_[i];
    const std::string name = one_line(a.name);
    if (s.files_.empty() || a.file == b.file)
      return bad_input("[checkpoint] {}: expected tensor '{}' once, got it twice",
                       s.files_.empty() ? s.path_.string() : s.files_[a.file].string(), name);
    return bad_input("[checkpoint] {}: expected tensor '{}' in one shard, got it also in {}", s.files_[a.file].string(),
                     name, s.files_[b.file].string());
  }
  return std::shared_ptr<const TensorSource>(std::move(source_));
}

}  // namespace danqing
