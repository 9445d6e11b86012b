#include "bench/synthetic.h"

#include <cmath>
#include <cstring>
#include <new>

#include "base/float_bits.h"
#include "base/try.h"
#include "base/units.h"

namespace danqing::app {
namespace {

/// Fast and good enough for weights that only have to keep magnitudes (Marsaglia's xorshift).
struct XorShift {
  uint64_t s = 0x9E3779B97F4A7C15ull;
  uint32_t next() {
    s ^= s << 13;
    s ^= s >> 7;
    s ^= s << 17;
    return static_cast<uint32_t>(s >> 32);
  }
};

void fill(const TensorSpec& spec, uint16_t* out, int64_t n, XorShift& random) {
  const bool bias = spec.name.size() >= 4 && spec.name.compare(spec.name.size() - 4, 4, "bias") == 0;
  if (spec.use == WeightUse::vector) {
    std::fill(out, out + n, f32_to_bf16(bias || spec.name.find("running_mean") != std::string::npos ? 0.0f : 1.0f));
    return;
  }
  const int64_t inputs = spec.shape.empty() || spec.shape[0] == 0 ? 1 : n / spec.shape[0];
  const float range =
      std::sqrt(3.0f / static_cast<float>(std::max<int64_t>(1, inputs)));  // uniform variance = range^2/3
  uint16_t table[256];
  for (int i = 0; i < 256; ++i) table[i] = f32_to_bf16(range * (static_cast<float>(i) - 127.5f) / 127.5f);
  for (int64_t i = 0; i < n; ++i) out[i] = table[random.next() >> 24];
}

}  // namespace

Result<ComponentFiles> synthesize(const std::string& role, const Json& config, const std::vector<TensorSpec>& specs) {
  std::vector<TensorInfo> tensors;
  uint64_t offset = 0;
  for (const TensorSpec& spec : specs) {
    const int64_t n = element_count(spec.shape);
    if (n < 0)
      return usage_error("[--config] {}: tensor '{}' of shape {} is too large", role, spec.name, to_string(spec.shape));
    tensors.push_back({spec.name, DType::bf16, spec.shape, 0, offset, 2 * static_cast<uint64_t>(n)});
    offset = (offset + 2 * static_cast<uint64_t>(n) + 63) / 64 * 64;
  }
  std::vector<std::byte> storage;
  try {
    storage.resize(offset);
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::does_not_fit,
                "[bench] {} of random weights for {} do not fit into memory; use fewer --layers", format_bytes(offset),
                role);
  }
  XorShift random;
  for (size_t i = 0; i < specs.size(); ++i)
    fill(specs[i], reinterpret_cast<uint16_t*>(storage.data() + tensors[i].offset), element_count(specs[i].shape),
         random);
  ComponentFiles files;
  files.role = role;
  files.path = "synthetic-" + role;
  files.config = config;
  files.source = TensorSource::from_memory(std::move(tensors), std::move(storage));
  return files;
}

}  // namespace danqing::app
