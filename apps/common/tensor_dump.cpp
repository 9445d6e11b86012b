#include "common/tensor_dump.h"

#include <cstring>

#include "base/try.h"

namespace danqing::app {

Result<std::unique_ptr<TensorDump>> TensorDump::open(const std::filesystem::path& directory) {
  std::error_code ec;
  std::filesystem::create_directories(directory, ec);
  if (ec) return fail(ErrorCode::failed, "[--dump-tensors] cannot make {}: {}", directory.string(), ec.message());
  auto d = std::make_unique<TensorDump>();
  d->path_ = directory / "tensors.safetensors";
  DQ_TRY(d->writer_, SafetensorsWriter::create(d->path_));
  return d;
}

DumpSink TensorDump::sink() {
  return [this](const std::string& name, const std::vector<int64_t>& shape, const std::vector<float>& data) {
    if (!status_) return;
    status_ = writer_->add(name, DType::f32, shape, std::as_bytes(std::span(data)));
  };
}

Result<std::filesystem::path> TensorDump::finish() {
  DQ_CHECK(status_);
  DQ_CHECK(writer_->finish());
  return path_;
}

}  // namespace danqing::app
