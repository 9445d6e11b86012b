// https://github.com/huggingface/safetensors#format: u64 header length, JSON header, data without holes.
#include <algorithm>

#include "base/bytes.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/safetensors_header.h"
#include "checkpoint/source_builder.h"

namespace danqing {
namespace {

constexpr uint64_t kMaxHeader = 100'000'000;  // the limit of the reference implementation

Result<TensorInfo> checked(const SafetensorsEntry& e, uint64_t data_start, const std::string& file) {
  const std::string name = one_line(e.name);
  const auto dtype = dtype_from_safetensors(e.dtype);
  if (!dtype)
    return bad_input(
        "[checkpoint] {}: tensor '{}' expected a known dtype (F32, F16, BF16, F8_E4M3, I64, ...), got '{}'", file, name,
        one_line(e.dtype, 40));
  const int64_t count = element_count(e.shape);
  const auto size = static_cast<uint64_t>(traits(*dtype).block_bytes);
  if (count < 0 || static_cast<uint64_t>(count) > UINT64_MAX / 2 / size)
    return bad_input("[checkpoint] {}: tensor '{}' expected a shape that fits into memory, got {}", file, name,
                     to_string(e.shape));
  const uint64_t bytes = static_cast<uint64_t>(count) * size;
  if (e.end < e.begin || e.end - e.begin != bytes || e.end > UINT64_MAX - data_start)
    return bad_input("[checkpoint] {}: tensor '{}' {}{} expected {} bytes, got data_offsets [{}, {}]", file, name,
                     traits(*dtype).name, to_string(e.shape), bytes, e.begin, e.end);
  return TensorInfo{.name = e.name, .dtype = *dtype, .shape = e.shape, .offset = data_start + e.begin, .bytes = bytes};
}

// The data area must be covered exactly: no overlap, no hole, nothing behind the last tensor.
Result<void> check_cover(std::vector<const TensorInfo*> tensors, uint64_t data_start, uint64_t file_size,
                         const std::string& file) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorInfo* a, const TensorInfo* b) {
    return a->offset != b->offset ? a->offset < b->offset : a->bytes < b->bytes;
  });
  uint64_t end = data_start;
  for (const TensorInfo* t : tensors) end = std::max(end, t->offset + t->bytes);
  if (end > file_size)
    return bad_input(
        "[checkpoint] {}: expected {} bytes as its header says, got {}: the download is incomplete, fetch it again",
        file, end, file_size);
  const TensorInfo* previous = nullptr;
  end = data_start;
  for (const TensorInfo* t : tensors) {
    if (t->offset < end)
      return bad_input("[checkpoint] {}: tensors '{}' and '{}' overlap; the file is damaged", file,
                       one_line(previous->name), one_line(t->name));
    if (t->offset > end)
      return bad_input("[checkpoint] {}: tensor '{}' expected to begin at byte {}, got {}: the format allows no holes",
                       file, one_line(t->name), end, t->offset);
    end = t->offset + t->bytes;
    previous = t;
  }
  if (end != file_size)
    return bad_input("[checkpoint] {}: expected {} bytes as its header says, got {}: {} foreign bytes at the end", file,
                     end, file_size, file_size - end);
  return {};
}

}  // namespace

Result<uint64_t> safetensors_header_bytes(std::span<const std::byte> bytes, uint64_t file_size,
                                          const std::string& where) {
  if (file_size < 8 || bytes.size() < 8)
    return bad_input("[checkpoint] {}: expected at least the 8 bytes of a safetensors header length, got {}", where,
                     bytes.size());
  const auto length = load_le<uint64_t>(bytes.data());
  if (length > kMaxHeader)
    return bad_input(
        "[checkpoint] {}: expected a safetensors header of at most {} bytes, got {}; not a safetensors file", where,
        kMaxHeader, length);
  if (length > file_size - 8)
    return bad_input(
        "[checkpoint] {}: expected a header of {} bytes, got {}: the download is incomplete, fetch it again", where,
        length, file_size - 8);
  return 8 + length;
}

Result<void> read_safetensors(const MappedFile& map, uint32_t file, SourceBuilder& out) {
  return read_safetensors(map.bytes(), map.bytes().size(), map.path().string(), file, out);
}

Result<void> read_safetensors(std::span<const std::byte> bytes, uint64_t file_size, const std::string& where,
                              uint32_t file, SourceBuilder& out) {
  DQ_TRY(const uint64_t data_start, safetensors_header_bytes(bytes, file_size, where));
  const uint64_t length = data_start - 8;
  const std::string_view json(reinterpret_cast<const char*>(bytes.data()) + 8, length);
  if (json.empty() || json[0] != '{')
    return bad_input("[checkpoint] {}: expected a safetensors header that begins with '{{', got '{}'", where,
                     one_line(json.substr(0, 8)));
  DQ_TRY(SafetensorsHeader header, parse_safetensors_header(json, where));

  std::vector<TensorInfo> tensors;
  tensors.reserve(header.entries.size());
  for (const SafetensorsEntry& e : header.entries) {
    DQ_TRY(TensorInfo t, checked(e, data_start, where));
    t.file = file;
    tensors.push_back(std::move(t));
  }
  std::vector<const TensorInfo*> pointers;
  for (const TensorInfo& t : tensors) pointers.push_back(&t);
  DQ_CHECK(check_cover(std::move(pointers), data_start, file_size, where));
  for (TensorInfo& t : tensors) out.add(std::move(t));
  for (auto& [key, value] : header.metadata) out.add_metadata(key, std::move(value));
  return {};
}

}  // namespace danqing
