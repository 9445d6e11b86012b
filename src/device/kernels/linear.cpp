#include "device/kernels/linear.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "device/kernels/activation.h"
#include "device/kernels/gemm.h"
#include "device/kernels/onednn.h"
#include "device/kernels/rows.h"
#include "device/kernels/rowwise.h"
#include "device/stored_matrix.h"

namespace danqing::kernels {
namespace {

/// Rows that are items' only ones (a token being decoded, a time embedding) are multiplied with each weight where it
/// lies; packing it would cost more than the product. Which way a row goes must not depend on how many items there are:
/// both add in an order of their own, and a picture of a batch is to be the one of its single run.
constexpr int64_t kDotRows = 64;
constexpr const char* kLinear = "linear";
constexpr int64_t kDotColumns = 64;  ///< of a task
constexpr size_t kRowsAhead = 4;     ///< rows of weights that are fetched while others are packed

Format format_for(const Device& device, DType weight) {
  if (weight == DType::f32) return Format::f32;
  switch (device.cpu_precision()) {
    case CpuPrecision::f32:
    case CpuPrecision::bf16: return Format::f32;
    case CpuPrecision::i16: return computes(Format::i16) ? Format::i16 : Format::f32;
    case CpuPrecision::i8: return computes(Format::i8) ? Format::i8 : preferred_format();
    case CpuPrecision::automatic: break;
  }
  return preferred_format();
}

/// Whether bf16 weights are multiplied as bf16, by oneDNN.
bool wants_bf16(const Device& device, DType weight) {
  if (weight != DType::bf16) return false;
  if (device.cpu_precision() == CpuPrecision::bf16) return true;
  return device.cpu_precision() == CpuPrecision::automatic && onednn_prefers_bf16();
}

/// Of rows far apart the hardware does not see short pieces coming.
void fetch(const std::byte* from, size_t bytes) {
  for (size_t line = 0; line < bytes; line += 64) __builtin_prefetch(from + line);
}

/// Rows of a weight matrix as f32, their factors in them unless those wait for the sums.
RowSource stored_rows(const std::byte* data, DType type, size_t row_bytes, int64_t in, const StoredMatrix* m) {
  if (type == DType::f32)
    return [=](int64_t row, int64_t k0, int64_t, float*) {
      return reinterpret_cast<const float*>(data + static_cast<size_t>(row) * row_bytes) + k0;
    };
  const auto block = static_cast<size_t>(traits(type).block_elements);
  const auto bytes = static_cast<size_t>(traits(type).block_bytes);
  const ScaleTable* scale = m && m->scaled && !m->by_rows ? &m->scale : nullptr;
  return [=](int64_t row, int64_t k0, int64_t kn, float* buffer) -> const float* {
    const std::byte* at = data + static_cast<size_t>(row) * row_bytes + static_cast<size_t>(k0) / block * bytes;
    fetch(at + kRowsAhead * row_bytes, static_cast<size_t>(kn) / block * bytes);
    expand(type, at, kn, buffer);
    if (scale) scale->multiply(row * in + k0, {buffer, static_cast<size_t>(kn)});
    return buffer;
  };
}

struct Linear {
  DType type = DType::f32;
  Format format = Format::f32;
  int64_t rows = 0, in = 0, out = 0;
  bool bias = false;
  std::optional<Gate> gate;
  std::shared_ptr<const Bf16Product> bf16;  ///< null: our own tiles
  /// Of the weights, owned by them; null: their ggml type says everything.
  const StoredMatrix* matrix = nullptr;
  StoredMatrix own;  ///< W8A8 with such weights: keeps the scales of their rows

  bool factors_last() const { return matrix && matrix->scaled && matrix->by_rows; }
  bool finishes() const { return bias || gate || factors_last(); }
};

size_t scale_bytes(const Linear& l) {
  return l.format == Format::i8 ? (static_cast<size_t>(l.rows) * sizeof(float) + 63) / 64 * 64 : 0;
}

Gemm product(const Linear& l) {
  Gemm g;
  g.m = l.rows, g.n = l.out, g.k = l.in, g.format = l.format;
  g.b_is_coarse = true;
  return g;
}

/// The weights' factors, bias and gate for `count` values of row m from column n on.
void finish(const Linear& l, const ggml_tensor* bias, const ggml_tensor* gate, int64_t m, int64_t n, int64_t count,
            float* y) {
  if (l.factors_last()) {
    const std::span<const float> f = l.matrix->scale.by_row();
    const float* rows = f.size() > 1 ? f.data() + n : nullptr;
    for (int64_t i = 0; i < count; ++i) y[i] *= rows ? rows[i] : f[0];
  }
  if (bias) {
    const float* b = static_cast<const float*>(bias->data) + n;
    for (int64_t i = 0; i < count; ++i) y[i] += b[i];
  }
  if (gate) {
    const float* a = static_cast<const float*>(gate->data) + m * gate->ne[0] + n;
    if (*l.gate == Gate::silu)
      silu_times(a, y, count, y);
    else
      gelu_erf_times(a, y, count, y);
  }
}

/// dot() with weights whose factors change along a row.
void dot_expanded(const Linear& l, const RowSource& weights, int64_t n, const float* x, int rows, float* y) {
  constexpr int64_t kPiece = 1024;  // whole blocks of every type
  alignas(64) float buffer[kPiece];
  std::fill_n(y, rows, 0.0f);
  for (int64_t k = 0; k < l.in; k += kPiece) {
    const int64_t kn = std::min(kPiece, l.in - k);
    float part[4];
    dot(DType::f32, reinterpret_cast<const std::byte*>(weights(n, k, kn, buffer)), x + k, l.in, rows, kn, part);
    for (int i = 0; i < rows; ++i) y[i] += part[i];
  }
}

void run_dots(const Linear& l, const OpRun& r, const ggml_tensor* bias, const ggml_tensor* gate) {
  const auto* x = static_cast<const float*>(r.out->src[0]->data);
  const ggml_tensor* w = r.out->src[1];
  const auto* weights = static_cast<const std::byte*>(w->data);
  auto* y = static_cast<float*>(r.out->data);
  const bool plain = !l.matrix || !l.matrix->scaled || l.factors_last();
  const RowSource scaled = stored_rows(weights, l.type, w->nb[1], l.in, l.matrix);
  // Row by row, so that each is added as if it were alone; the columns' weights are still in the cache for the next.
  for_ranges(r.pool, l.out, kDotColumns, [&](int64_t first, int64_t last, int) {
    for (int64_t m = 0; m < l.rows; ++m) {
      const float* row = x + m * l.in;
      float* sums = y + m * l.out;
      int64_t n = first;
      if (plain && dots_columns(l.type))
        for (; n + 4 <= last; n += 4)
          dot_columns(l.type, weights + static_cast<size_t>(n) * w->nb[1], w->nb[1], row, l.in, sums + n);
      for (; n < last; ++n) {
        if (plain)
          dot(l.type, weights + static_cast<size_t>(n) * w->nb[1], row, l.in, 1, l.in, sums + n);
        else
          dot_expanded(l, scaled, n, row, 1, sums + n);
      }
      finish(l, bias, gate, m, first, last - first, sums + first);
    }
  });
}

/// max |row| / 127 of every row of the weights.
std::vector<float> find_scales(const Linear& l, const RowSource& rows, Pool& pool) {
  std::vector<float> scales(static_cast<size_t>(l.out));
  for_ranges(pool, l.out, kDotColumns, [&](int64_t first, int64_t last, int) {
    constexpr int64_t kPiece = 1024;
    alignas(64) float buffer[kPiece];
    for (int64_t n = first; n < last; ++n) {
      float max = 0;
      for (int64_t k = 0; k < l.in; k += kPiece) {
        const int64_t kn = std::min(kPiece, l.in - k);
        const float part = absmax(rows(n, k, kn, buffer), kn);
        max = part > max || part != part ? part : max;
      }
      scales[static_cast<size_t>(n)] = max / 127.0f;
    }
  });
  return scales;
}

void run_gemm(Linear& l, const OpRun& r, const ggml_tensor* bias, const ggml_tensor* gate) {
  const auto* x = static_cast<const float*>(r.out->src[0]->data);
  const ggml_tensor* w = r.out->src[1];
  if (l.bf16) {
    Bf16Product::Finish last;
    if (l.finishes())
      last = [&](int64_t m, int64_t n, int64_t count, float* y) { finish(l, bias, gate, m, n, count, y); };
    return l.bf16->run(r.pool, x, static_cast<const std::byte*>(w->data), static_cast<float*>(r.out->data), r.scratch,
                       last);
  }
  Gemm g = product(l);
  g.a = [x, in = l.in](int64_t row, int64_t k0, int64_t, float*) { return x + row * in + k0; };
  g.b = stored_rows(static_cast<const std::byte*>(w->data), l.type, w->nb[1], l.in, l.matrix);
  if (l.type == DType::bf16)
    g.b_bf16 = [data = static_cast<const std::byte*>(w->data), bytes = w->nb[1]](int64_t row, int64_t k0, int64_t kn) {
      const std::byte* at = data + static_cast<size_t>(row) * bytes + 2 * static_cast<size_t>(k0);
      fetch(at + kRowsAhead * bytes, 2 * static_cast<size_t>(kn));
      return reinterpret_cast<const uint16_t*>(at);
    };
  g.c = static_cast<float*>(r.out->data);
  g.ldc = l.out;
  if (l.finishes())
    g.finish = [&](int64_t m, int64_t n, int64_t count, float* y) { finish(l, bias, gate, m, n, count, y); };
  std::byte* scratch = r.scratch;
  if (l.format == Format::i8) {
    auto* scales = reinterpret_cast<float*>(scratch);
    scratch += scale_bytes(l);
    for_ranges(r.pool, l.rows, 64, [&](int64_t first, int64_t last, int) {
      for (int64_t m = first; m < last; ++m) scales[m] = absmax(x + m * l.in, l.in) / 127.0f;
    });
    g.a_scale = scales;
    const StoredMatrix& keeper = l.matrix ? *l.matrix : l.own;
    g.b_scale = keeper.row_scales([&] { return find_scales(l, g.b, r.pool); }).data();
  }
  multiply(r.pool, g, scratch);
}

ggml_tensor* append(Graph& g, ggml_tensor* x, ggml_tensor* weight, ggml_tensor* bias, ggml_tensor* gate,
                    std::optional<Gate> act) {
  auto l = std::make_shared<Linear>();
  l->matrix = stored_matrix(weight);
  l->type = l->matrix ? l->matrix->type : *dtype_from_ggml(weight->type);
  l->format = format_for(g.device(), l->type);
  l->rows = ggml_nrows(x), l->in = x->ne[0], l->out = weight->ne[1];
  l->bias = bias != nullptr;
  l->gate = act;
  const bool dots = x->ne[1] == 1 && l->rows <= kDotRows;
  if (!dots && wants_bf16(g.device(), l->type)) l->bf16 = Bf16Product::create(l->rows, l->out, l->in, weight->nb[1]);
  const int threads = g.device().pool()->threads();
  const size_t scratch = dots      ? 0
                         : l->bf16 ? l->bf16->scratch(threads)
                                   : scale_bytes(*l) + gemm_scratch(product(*l), threads);
  std::vector<ggml_tensor*> inputs{x, weight};
  if (bias) inputs.push_back(bias);
  if (gate) inputs.push_back(gate);
  return op(g, act ? "linear_gated" : kLinear, {l->out, x->ne[1], x->ne[2], x->ne[3]}, inputs, scratch,
            [l, dots](const OpRun& r) {
              const ggml_tensor* b = l->bias ? r.out->src[2] : nullptr;
              const ggml_tensor* a = l->gate ? r.out->src[l->bias ? 3 : 2] : nullptr;
              if (dots)
                run_dots(*l, r, b, a);
              else
                run_gemm(*l, r, b, a);
            });
}

}  // namespace

bool made_of_integers(const Graph& g, const ggml_tensor* values) {
  constexpr int kHops = 6;  // views, copies
  const ggml_tensor* t = values;
  for (int i = 0; t && i < kHops; ++i, t = t->view_src ? t->view_src : t->src[0]) {
    if (std::string_view(t->name) != kLinear) continue;
    const StoredMatrix* m = stored_matrix(t->src[1]);
    const auto type = m ? m->type : dtype_from_ggml(t->src[1]->type).value_or(DType::f32);
    return computes(Format::i16) && format_for(g.device(), type) != Format::f32 && !wants_bf16(g.device(), type);
  }
  return false;
}

bool multiplies(const ggml_tensor* weight) {
  if (const StoredMatrix* m = stored_matrix(weight)) return expands(m->type);
  const auto dtype = dtype_from_ggml(weight->type);
  return dtype && *dtype != DType::i8 && expands(*dtype);
}

ggml_tensor* linear(Graph& g, ggml_tensor* x, ggml_tensor* weight, ggml_tensor* bias) {
  return append(g, x, weight, bias, nullptr, std::nullopt);
}

ggml_tensor* gated(Graph& g, ggml_tensor* gate, ggml_tensor* up, Gate act) {
  const bool product = std::string_view(up->name) == kLinear && up->src[1] && !up->src[2];
  if (product && ggml_is_contiguous(gate) && ggml_are_same_shape(gate, up))
    return append(g, up->src[0], up->src[1], nullptr, gate, act);
  return binary(g, gate, up, act == Gate::silu ? Binary::silu_times : Binary::gelu_erf_times);
}

}  // namespace danqing::kernels
