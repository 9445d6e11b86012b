#include "pull/shards.h"

#include <algorithm>

#include "base/text.h"
#include "base/try.h"
#include "checkpoint/source_builder.h"

namespace danqing::app {
namespace {

constexpr uint64_t kFirst = 1 << 18;  ///< most headers fit into this

/// Scales and markers of FP8 and 4-bit formats.
bool is_quantised(const TensorInfo& t) {
  for (const char* mark : {"weight_scale", "scale_weight", "comfy_quant", "scaled_fp8", ".qweight", ".absmax"})
    if (t.name.find(mark) != std::string::npos) return true;
  return t.dtype == DType::f8_e4m3 || t.dtype == DType::f8_e5m2;
}

Result<void> read_header(fetch::Http& http, Shard& s) {
  if (!s.file.size)
    return fail(ErrorCode::failed, "[pull] {}: the server does not say how long the file is, which --quant needs",
                fetch::shown_url(s.file.url));
  const auto grow = [&](uint64_t to) -> Result<void> {
    const uint64_t have = s.header.size();
    if (to <= have) return {};
    s.header.resize(to);
    return fetch::read_range(http, s.file, s.identity, {have, to},
                             std::as_writable_bytes(std::span(s.header)).subspan(have), 1, {});
  };
  DQ_CHECK(grow(std::min(kFirst, *s.file.size)));
  DQ_TRY(const uint64_t length,
         safetensors_header_bytes(std::as_bytes(std::span(s.header)), *s.file.size, s.file.path));
  DQ_CHECK(grow(length));
  s.header.resize(length);
  return {};
}

}  // namespace

fetch::Digest::Kind kind_of(const fetch::RemoteFile& f) {
  return f.sha256.empty() && !f.git_sha1.empty() ? fetch::Digest::Kind::git_sha1 : fetch::Digest::Kind::sha256;
}

Result<std::shared_ptr<const TensorSource>> open_outline(fetch::Http& http,
                                                         const std::vector<std::unique_ptr<Shard>>& shards) {
  SourceBuilder builder(shards[0]->file.path, TensorSource::Format::safetensors);
  for (size_t i = 0; i < shards.size(); ++i) {
    DQ_CHECK(read_header(http, *shards[i]));
    DQ_CHECK(read_safetensors(std::as_bytes(std::span(shards[i]->header)), *shards[i]->file.size, shards[i]->file.path,
                              static_cast<uint32_t>(i), builder));
  }
  DQ_TRY(const auto as_listed, builder.finish());
  std::vector<TensorInfo> tensors = as_listed->tensors();
  std::sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::pair(a.file, a.offset) < std::pair(b.file, b.offset);
  });
  SourceBuilder sorted(*as_listed);
  for (TensorInfo& t : tensors) {
    if (is_quantised(t))
      return bad_input("[pull] {}: is quantised already ({} is {}); pull it without --quant", shards[t.file]->file.path,
                       one_line(t.name), name(t.dtype));
    sorted.add(std::move(t));
  }
  return sorted.finish();
}

}  // namespace danqing::app
