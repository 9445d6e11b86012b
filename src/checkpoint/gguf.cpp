// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3, little-endian.
#include <algorithm>
#include <map>

#include "base/text.h"
#include "checkpoint/gguf_values.h"
#include "checkpoint/source_builder.h"

namespace danqing {
namespace {

constexpr uint64_t kMaxKey = 65535, kMaxName = 1024;
constexpr uint32_t kMaxAxes = 8;
// Some converters store tensors of more axes than ggml has under another shape and note the true one here.
constexpr std::string_view kTrueShape = "comfy.gguf.orig_shape.";

using Metadata = std::map<std::string, GgufValue>;

Result<Metadata> read_metadata(GgufCursor& in, uint64_t count) {
  Metadata out;
  for (uint64_t i = 0; i < count; ++i) {
    DQ_TRY(std::string key, in.text(fmt::format("metadata key {} of {}", i + 1, count), kMaxKey));
    DQ_TRY(GgufValue value, in.value(key));
    if (!out.emplace(key, std::move(value)).second)
      return bad_input("[checkpoint] {}: expected metadata key '{}' once, got it twice", in.where(), one_line(key));
  }
  return out;
}

Result<uint64_t> alignment_of(const Metadata& metadata, const std::string& where) {
  const auto it = metadata.find("general.alignment");
  if (it == metadata.end()) return uint64_t{32};
  const auto& v = it->second.integers;
  if (v.size() != 1 || v[0] < 1 || v[0] > (1 << 20) || (v[0] & (v[0] - 1)) != 0)
    return bad_input("[checkpoint] {}: general.alignment expected a power of two up to 1048576, got {}", where,
                     one_line(it->second.text, 40));
  return static_cast<uint64_t>(v[0]);
}

Result<TensorInfo> read_tensor(GgufCursor& in, uint64_t number, const Metadata& metadata) {
  TensorInfo t;
  const std::string& where = in.where();
  DQ_TRY(t.name, in.text(fmt::format("the name of tensor {}", number), kMaxName));
  const std::string what = fmt::format("tensor '{}'", one_line(t.name));
  DQ_TRY(const uint32_t axes, in.number<uint32_t>(what));
  if (axes > kMaxAxes)
    return bad_input("[checkpoint] {}: {} expected at most {} axes, got {}; the file is damaged", where, what, kMaxAxes,
                     axes);
  for (uint32_t a = 0; a < axes; ++a) {
    DQ_TRY(const uint64_t size, in.number<uint64_t>(what));
    if (size > static_cast<uint64_t>(INT64_MAX))
      return bad_input("[checkpoint] {}: {} expected a possible shape, got a size of {}", where, what, size);
    t.shape.insert(t.shape.begin(), static_cast<int64_t>(size));  // ggml counts from the fastest axis
  }
  DQ_TRY(const uint32_t type, in.number<uint32_t>(what));
  DQ_TRY(t.offset, in.number<uint64_t>(what));
  const auto dtype = type <= INT32_MAX ? dtype_from_ggml(static_cast<int>(type)) : std::nullopt;
  if (!dtype)
    return bad_input(
        "[checkpoint] {}: {} expected a known ggml type, got number {}; the file is newer than this program or damaged",
        where, what, type);
  t.dtype = *dtype;
  const DTypeTraits& k = traits(t.dtype);
  const int64_t count = element_count(t.shape);
  if (count < 0 || count > INT64_MAX / k.block_bytes)
    return bad_input("[checkpoint] {}: {} expected a shape that fits into memory, got {}", where, what,
                     to_string(t.shape));
  if (k.block_elements > 1 && (t.shape.empty() || t.shape.back() % k.block_elements != 0))
    return bad_input("[checkpoint] {}: {} {} expected rows of a multiple of {} elements, got {}", where, what, k.name,
                     k.block_elements, to_string(t.shape));
  t.bytes = static_cast<uint64_t>(count / k.block_elements) * static_cast<uint64_t>(k.block_bytes);
  // Rows that do not divide into blocks are also stored under another shape, so the noted one comes last.
  if (const auto shape = metadata.find(std::string(kTrueShape) + t.name); shape != metadata.end()) {
    const Shape& given = shape->second.integers;
    if (given.empty() || element_count(given) != element_count(t.shape))
      return bad_input("[checkpoint] {}: {} expected a noted shape of as many elements as {}, got {}", where, what,
                       to_string(t.shape), one_line(shape->second.text, 60));
    t.shape = given;
  }
  return t;
}

Result<void> place(std::vector<TensorInfo>& tensors, uint64_t data_start, uint64_t alignment, uint64_t file_size,
                   const std::string& where) {
  uint64_t end = data_start;
  for (TensorInfo& t : tensors) {
    if (t.offset % alignment != 0)
      return bad_input("[checkpoint] {}: tensor '{}' expected an offset that is a multiple of {}, got {}", where,
                       one_line(t.name), alignment, t.offset);
    if (t.offset > UINT64_MAX / 2 - data_start || t.bytes > UINT64_MAX / 2)
      return bad_input("[checkpoint] {}: tensor '{}' expected an offset inside the file, got {}", where,
                       one_line(t.name), t.offset);
    t.offset += data_start;
    end = std::max(end, t.offset + t.bytes);
  }
  if (end > file_size)
    return bad_input(
        "[checkpoint] {}: expected {} bytes as its header says, got {}: the download is incomplete, fetch it again",
        where, end, file_size);
  std::vector<const TensorInfo*> order;
  for (const TensorInfo& t : tensors)
    if (t.bytes > 0) order.push_back(&t);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < order.size(); ++i)
    if (order[i]->offset < order[i - 1]->offset + order[i - 1]->bytes)
      return bad_input("[checkpoint] {}: tensors '{}' and '{}' overlap; the file is damaged", where,
                       one_line(order[i - 1]->name), one_line(order[i]->name));
  return {};
}

}  // namespace

Result<void> read_gguf(const MappedFile& map, uint32_t file, SourceBuilder& out) {
  const std::string where = map.path().string();
  GgufCursor in(map.bytes(), where);
  DQ_CHECK(in.number<uint32_t>("the magic"));
  DQ_TRY(const uint32_t version, in.number<uint32_t>("the version"));
  if ((version & 0xffff) == 0 && version != 0)
    return bad_input("[checkpoint] {}: expected a little-endian GGUF file, got a big-endian one; convert it", where);
  if (version != 2 && version != 3)
    return bad_input("[checkpoint] {}: expected GGUF version 2 or 3, got {}", where, version);
  DQ_TRY(const uint64_t tensor_count, in.count("tensors", 24));     // name length, axes, type, offset
  DQ_TRY(const uint64_t metadata_count, in.count("metadata", 13));  // key length, type, one byte
  DQ_TRY(const Metadata metadata, read_metadata(in, metadata_count));
  DQ_TRY(const uint64_t alignment, alignment_of(metadata, where));
  if (const auto split = metadata.find("split.count");
      split != metadata.end() && !split->second.integers.empty() && split->second.integers[0] > 1)
    return bad_input(
        "[checkpoint] {}: expected a whole GGUF file, got one of {} parts; join them with llama-gguf-split --merge",
        where, split->second.integers[0]);

  std::vector<TensorInfo> tensors;
  for (uint64_t i = 0; i < tensor_count; ++i) {
    DQ_TRY(TensorInfo t, read_tensor(in, i + 1, metadata));
    t.file = file;
    tensors.push_back(std::move(t));
  }
  const uint64_t data_start = (in.position() + alignment - 1) / alignment * alignment;
  DQ_CHECK(place(tensors, data_start, alignment, map.bytes().size(), where));
  for (TensorInfo& t : tensors) out.add(std::move(t));
  for (const auto& [key, value] : metadata) out.add_metadata(key, value.text);
  return {};
}

}  // namespace danqing
