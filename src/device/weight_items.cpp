#include "device/weight_items.h"

#include <algorithm>

#include "base/try.h"
#include "device/convert.h"
#include "device/fp4_blocks.h"
#include "device/pages.h"
#include "device/placement.h"

namespace danqing {
namespace {

constexpr size_t kOverlap = size_t{64} << 10;  ///< more than any system's pages

/// ggml wants the buffer aligned, not each tensor in it; its kernels load unaligned vectors but aligned elements.
bool can_map(const Device& device, std::span<const std::byte> stored, const ggml_tensor* t) {
  if (!device.is_cpu() || stored.size() != ggml_nbytes(t)) return false;
  const size_t element = t->type == GGML_TYPE_F32 ? 4 : t->type == GGML_TYPE_I8 ? 1 : 2;
  return reinterpret_cast<uintptr_t>(stored.data()) % element == 0;
}

/// What ggml is told: for a dtype that it does not know, bytes.
ggml_type tensor_type(DType kept) {
  const int type = traits(kept).ggml_type;
  return type < 0 || kept == DType::i8 ? GGML_TYPE_I8 : static_cast<ggml_type>(type);
}

/// The kept values lie in the file as they are, whatever lies beside them.
bool as_stored(const WeightItem& item) {
  return item.kept == item.stored->dtype && item.stored->interleaved_head == 0 && !item.stored->delta &&
         (!item.stored->scale || (item.matrix && item.matrix->scaled));
}

}  // namespace

Result<WeightItem> describe(const Device& device, ggml_context* ctx, const TensorSource& source, const BoundTensor& b,
                            const WeightPolicy& policy) {
  const TensorInfo& stored = *b.stored;
  const std::span<const std::byte> bytes = source.bytes(stored);
  WeightItem item;
  item.name = b.spec.name;
  item.group = b.spec.group;
  item.stored = &stored;
  const auto direct = policy.matrix ? std::nullopt : direct_dtype(device, b.spec, stored);
  if (direct) {
    item.kept = *direct;
  } else {  // scales are multiplied in, which makes plain values of whatever is stored
    DQ_TRY(item.kept, kept_dtype(device, b.spec, stored.scale ? DType::bf16 : stored.dtype, policy));
  }
  DQ_TRY(item.tensor, new_tensor(ctx, tensor_type(item.kept), b.spec.shape, b.spec.name));
  if (element_count(stored.shape) != element_count(b.spec.shape) || bytes.size() != stored.bytes)
    return bad_input("[weights] expected {} {} in the file, got {}", b.spec.name, to_string(b.spec.shape),
                     to_string(stored.shape));
  const bool finds_scales = device.pool() && device.cpu_precision() == CpuPrecision::i8;
  if (direct || (finds_scales && b.spec.use != WeightUse::vector && b.spec.shape.size() == 2)) {
    item.matrix = describe_matrix(direct ? stored : TensorInfo(), item.kept);
    item.factors = direct ? factor_bytes(*item.matrix, stored) : 0;
    item.tensor->extra = item.matrix.get();
  }
  item.relaid = direct && item.kept != stored.dtype;
  item.mapped = as_stored(item) && can_map(device, bytes, item.tensor);
  item.bytes = item.mapped ? ggml_nbytes(item.tensor) : placed_bytes(device, item.tensor);
  if (!item.mapped)
    item.conversion =
        item.relaid ? fp4_blocks_bytes(stored, item.kept, device.threads())
                    : conversion_bytes(StoredValues::outline(stored, item.tensor->ne[0]), item.kept, device.threads());
  return item;
}

WeightSizes sizes_of(const Device& device, const std::vector<WeightItem>& items) {
  WeightSizes s;
  s.staging_on_device = device.is_cpu();
  int groups = 0;
  for (const WeightItem& i : items) groups = std::max(groups, i.group + 1);
  s.groups.resize(static_cast<size_t>(groups));
  s.turns.resize(s.groups.size());
  std::vector<std::vector<ggml_tensor*>> copied(s.groups.size());
  for (const WeightItem& i : items) {
    s.total += i.bytes + i.factors;
    s.fixed += i.factors;
    s.stored_bytes += i.stored->bytes;
    s.by_dtype[i.kept] += ggml_nbytes(i.tensor);
    s.staging = std::max(s.staging, i.conversion);
    if (i.group < 0) {
      s.fixed += i.bytes;
      s.fixed_staging = std::max(s.fixed_staging, i.conversion);
      continue;
    }
    const auto g = static_cast<size_t>(i.group);
    s.groups[g] += i.bytes;
    s.turns[g].staging = std::max(s.turns[g].staging, i.conversion);
    if (i.mapped)
      s.turns[g].mapped += i.bytes;
    else
      copied[g].push_back(i.tensor);
  }
  for (size_t g = 0; g < copied.size(); ++g)
    for (const Pack& p : pack(device, copied[g])) s.turns[g].buffers.push_back(p.bytes);
  return s;
}

ggml_backend_buffer_t wrap_mapped(const Device& device, const TensorSource& source, const WeightItem& item) {
  const std::span<const std::byte> stored = source.bytes(*item.stored);
  const size_t lead =
      reinterpret_cast<uintptr_t>(stored.data()) % ggml_backend_buft_get_alignment(device.buffer_type());
  auto* base = const_cast<std::byte*>(stored.data()) - lead;  // only an address: nothing before is read
  ggml_backend_buffer_t view = ggml_backend_cpu_buffer_from_ptr(base, stored.size() + lead);
  if (!view) return nullptr;
  ggml_backend_buffer_set_usage(view, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
  ggml_backend_tensor_alloc(view, item.tensor, base + lead);
  return view;
}

void unwrap_mapped(const TensorSource& source, ggml_backend_buffer_t wrapper) {
  if (source.in_files())
    pages::drop(
        {static_cast<const std::byte*>(ggml_backend_buffer_get_base(wrapper)), ggml_backend_buffer_get_size(wrapper)});
  ggml_backend_buffer_free(wrapper);
}

Result<void> fill(const Device& device, const TensorSource& source, const WeightItem& item,
                  const std::function<Result<void>(double share)>& progress) {
  const size_t size = ggml_nbytes(item.tensor);
  const std::span<const std::byte> stored = source.bytes(*item.stored);
  // What the threads read before the next piece arrives, at most.
  const size_t ahead = static_cast<size_t>(std::max(2, device.threads())) * (size_t{8} << 20);
  const bool file = source.in_files();
  size_t present = 0, dropped = 0;
  const auto bring = [&](size_t end) -> Result<void> {
    end = std::min(end, stored.size());
    if (!file || end <= present) return {};
    DQ_CHECK(pages::bring(stored.subspan(present, end - present), item.name));
    present = end;
    return {};
  };
  DQ_CHECK(bring(ahead));
  const auto set = [&](size_t offset, std::span<const std::byte> piece) -> Result<void> {
    ggml_backend_tensor_set(item.tensor, piece.data(), offset, piece.size());
    const double share = static_cast<double>(offset + piece.size()) / static_cast<double>(size);
    const size_t done = std::min(stored.size(), static_cast<size_t>(share * static_cast<double>(stored.size())));
    DQ_CHECK(bring(done + ahead));
    // From a little before, for the page that was shared with the piece before. Where a card has its own memory, the
    // pages may as well stay for the next time.
    if (file && device.is_cpu()) pages::drop(stored.subspan(dropped, done - dropped));
    dropped = done > kOverlap ? done - kOverlap : 0;
    return progress ? progress(share) : Result<void>();
  };
  const auto filled = [&]() -> Result<void> {
    if (item.relaid) return fp4_blocks(source, *item.stored, item.kept, device.threads(), set);
    TensorInfo from = *item.stored;
    if (as_stored(item)) from.scale = nullptr;  // the kernels multiply it in
    DQ_TRY(const StoredValues values, StoredValues::open(source, from, item.tensor->ne[0]));
    return convert(values, item.kept, {.threads = device.threads()}, set);
  }();
  if (!filled && filled.error().code == ErrorCode::bad_input && !filled.error().message.starts_with("[weights]"))
    return bad_input("[weights] {}: {}", item.name, filled.error().message);
  return filled;
}

}  // namespace danqing
