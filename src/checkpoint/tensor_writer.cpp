#include "checkpoint/tensor_writer.h"

#include <set>

#include "base/json.h"
#include "base/text.h"
#include "base/try.h"

namespace danqing {
namespace {

constexpr uint64_t kGgufAlignment = 32;
constexpr size_t kGgufAxes = 4;

uint64_t padded(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

template <class T>
void put(std::string& out, T v) {
  out.append(reinterpret_cast<const char*>(&v), sizeof v);
}
void put_text(std::string& out, std::string_view s) {
  put<uint64_t>(out, s.size());
  out += s;
}

// https://github.com/huggingface/safetensors#format
std::string safetensors_header(const std::vector<OutputTensor>& tensors, const std::vector<uint64_t>& bytes,
                               const OutputMetadata& metadata) {
  Json header = Json::object();
  for (const auto& [key, value] : metadata)
    if (const auto* text = std::get_if<std::string>(&value)) header["__metadata__"][key] = *text;
  uint64_t offset = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    header[tensors[i].name] = {{"dtype", std::string(traits(tensors[i].dtype).safetensors)},
                               {"shape", tensors[i].shape},
                               {"data_offsets", {offset, offset + bytes[i]}}};
    offset += bytes[i];
  }
  std::string text = dump_json(header);
  text.resize(padded(text.size(), 8), ' ');  // the format asks for data aligned to 8 bytes
  std::string out;
  put<uint64_t>(out, text.size());
  return out + text;
}

// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, version 3
std::string gguf_header(const std::vector<OutputTensor>& tensors, const std::vector<uint64_t>& bytes,
                        const OutputMetadata& metadata) {
  enum : uint32_t { kU32 = 4, kI32 = 5, kText = 8, kArray = 9 };
  std::string pairs, infos;
  uint64_t pair_count = 0, offset = 0;
  for (const auto& [key, value] : metadata) {
    put_text(pairs, key);
    const auto* text = std::get_if<std::string>(&value);
    put<uint32_t>(pairs, text ? kText : kU32);
    text ? put_text(pairs, *text) : put(pairs, std::get<uint32_t>(value));
    ++pair_count;
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    Shape shape = tensors[i].shape;
    if (shape.size() > kGgufAxes) {  // stored flat, the true shape noted where other programs look for it
      put_text(pairs, "comfy.gguf.orig_shape." + tensors[i].name);
      put<uint32_t>(pairs, kArray);
      put<uint32_t>(pairs, kI32);
      put<uint64_t>(pairs, shape.size());
      for (int64_t s : shape) put(pairs, static_cast<int32_t>(s));
      ++pair_count;
      shape = {element_count(shape)};
    }
    if (shape.empty()) shape = {1};
    put_text(infos, tensors[i].name);
    put<uint32_t>(infos, static_cast<uint32_t>(shape.size()));
    for (size_t a = shape.size(); a-- > 0;) put(infos, static_cast<uint64_t>(shape[a]));
    put<uint32_t>(infos, static_cast<uint32_t>(traits(tensors[i].dtype).ggml_type));
    put(infos, offset);
    offset += padded(bytes[i], kGgufAlignment);
  }
  std::string out = "GGUF";
  put<uint32_t>(out, 3);
  put<uint64_t>(out, tensors.size());
  put(out, pair_count);
  out += pairs + infos;
  out.resize(padded(out.size(), kGgufAlignment), '\0');
  return out;
}

Result<void> check(const OutputTensor& t, bool gguf) {
  const DTypeTraits& k = traits(t.dtype);
  if (gguf ? k.ggml_type < 0 : k.safetensors.empty())
    return usage_error("[convert] tensor '{}': {} has no dtype {}", one_line(t.name), gguf ? "GGUF" : "safetensors",
                       k.name);
  if (!tensor_bytes(t.dtype, t.shape))
    return usage_error("[convert] tensor '{}': expected rows of whole blocks of {} for {}, got {}", one_line(t.name),
                       k.block_elements, k.name, to_string(t.shape));
  return {};
}

}  // namespace

std::optional<uint64_t> tensor_bytes(DType dtype, const Shape& shape) {
  const DTypeTraits& k = traits(dtype);
  const int64_t n = element_count(shape);
  if (n < 0 || n > INT64_MAX / 4 / k.block_bytes) return {};
  if (k.block_elements > 1 && (shape.empty() || shape.back() % k.block_elements != 0)) return {};
  return static_cast<uint64_t>(n / k.block_elements) * static_cast<uint64_t>(k.block_bytes);
}

Result<TensorLayout> layout_tensors(TensorSource::Format format, const std::vector<OutputTensor>& tensors,
                                    const OutputMetadata& metadata) {
  const bool gguf = format == TensorSource::Format::gguf;
  TensorLayout out;
  std::set<std::string_view> names;
  for (const OutputTensor& t : tensors) {
    DQ_CHECK(check(t, gguf));
    if (!names.insert(t.name).second || (!gguf && t.name == "__metadata__"))
      return usage_error("[convert] expected every tensor name once, got '{}' again", one_line(t.name));
    out.bytes.push_back(*tensor_bytes(t.dtype, t.shape));
  }
  out.header = gguf ? gguf_header(tensors, out.bytes, metadata) : safetensors_header(tensors, out.bytes, metadata);
  out.file_bytes = out.header.size();
  for (const uint64_t b : out.bytes) {
    out.offsets.push_back(out.file_bytes);
    out.file_bytes += padded(b, gguf ? kGgufAlignment : 1);
  }
  return out;
}

Result<TensorWriter> TensorWriter::create(const std::filesystem::path& path, TensorSource::Format format,
                                          const std::vector<OutputTensor>& tensors, const OutputMetadata& metadata) {
  DQ_TRY(TensorLayout layout, layout_tensors(format, tensors, metadata));
  DQ_TRY(PartFile file, PartFile::create(path));
  TensorWriter w(std::move(file));
  w.alignment_ = format == TensorSource::Format::gguf ? kGgufAlignment : 1;
  w.file_bytes_ = layout.file_bytes;
  w.bytes_ = std::move(layout.bytes);
  DQ_CHECK(w.file_.write(layout.header));
  return w;
}

Result<void> TensorWriter::write(std::span<const std::byte> bytes) {
  if (current_ >= bytes_.size() || bytes.size() > bytes_[current_] - written_)
    return fail(ErrorCode::failed, "[convert] expected no more bytes for tensor {}, got {}", current_, bytes.size());
  written_ += bytes.size();
  return file_.write({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

Result<void> TensorWriter::next() {
  if (current_ >= bytes_.size() || written_ != bytes_[current_])
    return fail(ErrorCode::failed, "[convert] expected all bytes of tensor {}, got {}", current_, written_);
  const std::string padding(padded(written_, alignment_) - written_, '\0');
  ++current_;
  written_ = 0;
  return file_.write(padding);
}

Result<void> TensorWriter::finish(bool overwrite) {
  if (current_ != bytes_.size())
    return fail(ErrorCode::failed, "[convert] expected {} tensors, got {}", bytes_.size(), current_);
  return file_.publish(overwrite);
}

}  // namespace danqing
