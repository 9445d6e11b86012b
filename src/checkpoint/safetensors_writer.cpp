#include "checkpoint/safetensors_writer.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "base/try.h"

namespace danqing {
namespace {

Error write_error(const std::filesystem::path& path) {
  return fail(ErrorCode::failed, "[file] cannot write {}: {}", path.string(), std::strerror(errno));
}

}  // namespace

Result<std::unique_ptr<SafetensorsWriter>> SafetensorsWriter::create(const std::filesystem::path& path) {
  std::unique_ptr<SafetensorsWriter> w(new SafetensorsWriter);
  w->path_ = path;
  w->part_ = path;
  w->part_ += fmt::format(".data{}", ::getpid());
  w->data_ = std::fopen(w->part_.c_str(), "w+bx");
  if (!w->data_) return write_error(path);
  return w;
}

SafetensorsWriter::~SafetensorsWriter() {
  if (!data_) return;
  std::fclose(data_);
  ::unlink(part_.c_str());
}

Result<void> SafetensorsWriter::add(const std::string& name, DType dtype, const Shape& shape,
                                    std::span<const std::byte> bytes) {
  const DTypeTraits& t = traits(dtype);
  const int64_t n = element_count(shape);
  if (t.safetensors.empty() || n < 0 || static_cast<uint64_t>(n) * static_cast<uint64_t>(t.block_bytes) != bytes.size())
    return fail(ErrorCode::failed, "[safetensors] {}: tensor '{}' of shape {} does not take {} bytes of {}",
                path_.string(), name, to_string(shape), bytes.size(), t.name);
  if (name == "__metadata__")
    return fail(ErrorCode::failed, "[safetensors] {}: expected a tensor name, got '{}'", path_.string(), name);
  if (header_.contains(name))
    return fail(ErrorCode::failed, "[safetensors] {}: tensor '{}' was written already", path_.string(), name);
  if (!bytes.empty() && std::fwrite(bytes.data(), 1, bytes.size(), data_) != bytes.size()) return write_error(path_);
  header_[name] = {
      {"dtype", std::string(t.safetensors)}, {"shape", shape}, {"data_offsets", {offset_, offset_ + bytes.size()}}};
  offset_ += bytes.size();
  return {};
}

Result<void> SafetensorsWriter::finish() {
  if (!metadata_.empty()) header_["__metadata__"] = metadata_;
  std::string header = dump_json(header_);
  header.resize((header.size() + 7) / 8 * 8, ' ');  // the format asks for data aligned to 8 bytes
  std::filesystem::path whole = path_;
  whole += fmt::format(".part{}", ::getpid());
  std::FILE* out = std::fopen(whole.c_str(), "wb");
  if (!out) return write_error(path_);
  const uint64_t n = header.size();
  unsigned char length[8];
  for (int i = 0; i < 8; ++i) length[i] = static_cast<unsigned char>(n >> (8 * i));
  bool ok = std::fwrite(length, 1, 8, out) == 8 && std::fwrite(header.data(), 1, n, out) == n;
  ok = ok && std::fflush(data_) == 0 && std::fseek(data_, 0, SEEK_SET) == 0;
  std::vector<char> buffer(1 << 20);
  while (ok) {
    const size_t got = std::fread(buffer.data(), 1, buffer.size(), data_);
    if (got == 0) break;
    ok = std::fwrite(buffer.data(), 1, got, out) == got;
  }
  ok = ok && !std::ferror(data_);
  ok = (std::fclose(out) == 0) && ok;
  ok = ok && ::rename(whole.c_str(), path_.c_str()) == 0;
  if (!ok) {
    const Error e = write_error(path_);
    ::unlink(whole.c_str());
    return e;
  }
  std::fclose(data_);
  data_ = nullptr;
  ::unlink(part_.c_str());
  return {};
}

}  // namespace danqing
