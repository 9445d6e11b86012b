#include "device/stored_matrix.h"

#include "base/try.h"
#include "device/device.h"
#include "device/kernels/rows.h"

namespace danqing {
namespace {

using Layout = TensorScale::Layout;

/// Blocks of ggml that hold the same values and scales as packed 4-bit floats.
std::optional<DType> blocks_for(const TensorInfo& t, int64_t columns) {
  if (!t.scale || t.scale->block_rows != 1) return std::nullopt;
  const TensorScale& s = *t.scale;
  if (s.layout != Layout::grid && s.layout != Layout::tiles) return std::nullopt;
  if (s.block_columns == 16 && s.values.dtype == DType::f8_e4m3 && columns % 64 == 0) return DType::nvfp4;
  const bool power = s.values.dtype == DType::f8_e8m0 || s.values.dtype == DType::u8;
  if (s.block_columns == 32 && power && columns % 32 == 0) return DType::mxfp4;
  return std::nullopt;
}

bool is_fp4(DType t) { return t == DType::f4_e2m1 || t == DType::f4_e2m1_hi; }

/// The scale that remains: 4-bit floats take theirs into their blocks, the factor of the whole tensor stays.
TensorInfo with_remaining_scale(const TensorInfo& stored) {
  if (!is_fp4(stored.dtype) || !stored.scale) return stored;
  TensorInfo t = stored;
  t.scale = nullptr;
  if (stored.scale->global) {
    TensorScale s;
    s.values = *stored.scale->global;
    t.scale = std::make_shared<const TensorScale>(std::move(s));
  }
  return t;
}

}  // namespace

std::optional<DType> direct_dtype(const Device& device, const TensorSpec& spec, const TensorInfo& stored) {
  if (spec.use != WeightUse::matrix || !device.pool() || spec.shape.size() != 2 || stored.interleaved_head != 0 ||
      stored.delta)
    return std::nullopt;
  if (stored.shape != spec.shape) return std::nullopt;  // scales count by stored rows
  const DType t = stored.dtype;
  if (is_fp4(t)) return blocks_for(stored, spec.shape[1]);
  if (t == DType::f8_e4m3 || t == DType::f8_e5m2 || (t == DType::i8 && stored.scale)) return t;
  if (!is_ggml_quantized(t) || !stored.scale || !kernels::expands(t)) return std::nullopt;
  return spec.shape[1] % traits(t).block_elements == 0 ? std::optional(t) : std::nullopt;
}

std::shared_ptr<StoredMatrix> describe_matrix(const TensorInfo& stored, DType kept) {
  auto m = std::make_shared<StoredMatrix>();
  m->type = kept;
  const TensorInfo t = with_remaining_scale(stored);
  if (!t.scale) return m;
  m->scaled = true;
  m->by_rows = t.scale->layout == Layout::tensor || t.scale->layout == Layout::rows;
  return m;
}

uint64_t factor_bytes(const StoredMatrix& m, const TensorInfo& stored) {
  return m.scaled ? static_cast<uint64_t>(element_count(with_remaining_scale(stored).scale->values.shape)) * 4 : 0;
}

Result<void> read_factors(StoredMatrix& m, const TensorSource& source, const TensorInfo& stored) {
  if (!m.scaled) return {};
  DQ_TRY(m.scale, ScaleTable::read(source, with_remaining_scale(stored)));
  return {};
}

const std::vector<float>& StoredMatrix::row_scales(const std::function<std::vector<float>()>& find) const {
  std::call_once(once_, [&] { row_scales_ = find(); });
  return row_scales_;
}

}  // namespace danqing
