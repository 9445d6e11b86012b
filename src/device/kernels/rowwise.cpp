#include "device/kernels/rowwise.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "device/kernels/activation.h"
#include "device/kernels/note.h"

namespace danqing::kernels {
namespace {

constexpr int64_t kTaskValues = 16384;  ///< of one task: small enough to spread, large enough to be worth it

std::array<int64_t, 4> sizes(const ggml_tensor* t) { return {t->ne[0], t->ne[1], t->ne[2], t->ne[3]}; }

/// Where row (i1, i2, i3) of `t` begins; indices beyond its sizes wrap (ggml's broadcasting).
float* row(const ggml_tensor* t, int64_t i1, int64_t i2, int64_t i3) {
  return reinterpret_cast<float*>(static_cast<std::byte*>(t->data) + static_cast<size_t>(i1 % t->ne[1]) * t->nb[1] +
                                  static_cast<size_t>(i2 % t->ne[2]) * t->nb[2] +
                                  static_cast<size_t>(i3 % t->ne[3]) * t->nb[3]);
}

/// f(i1, i2, i3) for all rows of `t`.
template <class F>
void for_rows(Pool& pool, const ggml_tensor* t, F f) {
  const int64_t n1 = t->ne[1], n2 = t->ne[2], rows = ggml_nrows(t);
  for_ranges(pool, rows, kTaskValues / std::max<int64_t>(t->ne[0], 1), [&](int64_t first, int64_t last, int) {
    for (int64_t r = first; r < last; ++r) f(r % n1, r / n1 % n2, r / n1 / n2);
  });
}

/// Sizes with everything in one long row where the tensors lie densely one value after the other: fewer, longer rows.
bool flat(const ggml_tensor* a, const ggml_tensor* b) {
  return ggml_is_contiguous(a) && ggml_is_contiguous(b) && ggml_are_same_shape(a, b);
}
template <class F>
void for_pieces(Pool& pool, int64_t n, F f) {
  for_ranges(pool, n, kTaskValues, [&](int64_t first, int64_t last, int) { f(first, last - first); });
}

void apply(Unary f, const float* x, int64_t n, float* y) {
  switch (f) {
    case Unary::silu: silu(x, n, y); break;
    case Unary::gelu_erf: gelu_erf(x, n, y); break;
    case Unary::tanh: std::transform(x, x + n, y, [](float v) { return std::tanh(v); }); break;
  }
}

void apply(Binary f, const float* a, const float* b, int64_t n, float* y) {
  switch (f) {
    case Binary::add: add(a, b, n, y); break;
    case Binary::mul: multiply(a, b, n, y); break;
    case Binary::silu_times: silu_times(a, b, n, y); break;
    case Binary::gelu_erf_times: gelu_erf_times(a, b, n, y); break;
  }
}

/// The same with one value of b for the whole row.
void apply_scalar(Binary f, const float* a, float b, int64_t n, float* y) {
  if (f == Binary::add)
    add_scalar(a, b, n, y);
  else
    kernels::scale(a, b, n, y);
}

ggml_tensor* dense_rows(Graph& g, ggml_tensor* x) { return x->nb[0] == sizeof(float) ? x : copy(g, x); }

/// Values along the row of the smaller size, repeated (ggml allows any whole number of times).
void apply_repeated(Binary f, const float* a, const float* b, int64_t n, int64_t nb, float* y) {
  if (nb == 1) return apply_scalar(f, a, b[0], n, y);
  for (int64_t i = 0; i < n; i += nb) apply(f, a + i, b, nb, y + i);
}

void rotate_half(const float* x, const float* c, const float* s, int64_t d, float* y) {
  const int64_t h = d / 2;
  for (int64_t i = 0; i < h; ++i) {
    y[i] = x[i] * c[i] + -x[i + h] * s[i];
    y[i + h] = x[i + h] * c[i + h] + x[i] * s[i + h];
  }
}

void rotate_adjacent(const float* x, const float* c, const float* s, int64_t d, float* y) {
  for (int64_t i = 0; i + 1 < d; i += 2) {
    y[i] = x[i] * c[i] + -x[i + 1] * s[i];
    y[i + 1] = x[i + 1] * c[i + 1] + x[i] * s[i + 1];
  }
}

/// Bit 0 of Note::reusable where a result may be written over x: it lies as the result does.
int32_t over(const ggml_tensor* x) { return ggml_is_contiguous(x) ? 1 : 0; }

/// What follows a row's normalisation; null where there is none.
struct RowParts {
  ggml_tensor *weight, *bias, *scale, *shift;
};

/// (x - mean) / sqrt(var + eps) or x / sqrt(mean(x^2) + eps), times weight, plus bias, times (1 + scale), plus shift.
ggml_tensor* norm(Graph& g, ggml_tensor* x, const RowParts& parts, Note n) {
  x = dense_rows(g, x);
  std::vector<ggml_tensor*> inputs{x};
  RowParts at{};  // only whether they are there
  for (auto part : {&RowParts::weight, &RowParts::bias, &RowParts::scale, &RowParts::shift})
    if ((at.*part = parts.*part)) inputs.push_back(parts.*part);
  if (parts.weight) n.flags |= Note::kWeight;
  if (parts.bias) n.flags |= Note::kBias;
  n.made = parts.scale ? Made::pointwise : Made::row_norm;
  n.reusable = over(x);
  ggml_tensor* y = op(g, parts.scale ? "norm_modulate" : "norm", sizes(x), inputs, 0, [at, n](const OpRun& r) {
    int next = 0;
    const ggml_tensor* in = r.out->src[next++];
    const auto* w = at.weight ? static_cast<const float*>(r.out->src[next++]->data) : nullptr;
    const auto* b = at.bias ? static_cast<const float*>(r.out->src[next++]->data) : nullptr;
    const ggml_tensor* s = at.scale ? r.out->src[next++] : nullptr;
    const ggml_tensor* t = at.shift ? r.out->src[next] : nullptr;
    const int64_t width = in->ne[0];
    const auto size = static_cast<double>(width);
    for_rows(r.pool, in, [&](int64_t i1, int64_t i2, int64_t i3) {
      const float* from = row(in, i1, i2, i3);
      float* to = row(r.out, i1, i2, i3);
      const bool rms = n.has(Note::kRms);
      const float mean = rms ? 0.0f : static_cast<float>(sum(from, width) / size);
      const double squares = rms ? sum_squares(from, width) : sum_squared_differences(from, mean, width);
      normalise(from, mean, 1.0f / std::sqrt(static_cast<float>(squares / size) + n.eps), w, b, width, to);
      if (s) kernels::modulate(to, row(s, i1, i2, i3), t ? row(t, i1, i2, i3) : nullptr, width, to);
    });
  });
  return set_note(y, n);
}

}  // namespace

ggml_tensor* rms_norm(Graph& g, ggml_tensor* x, ggml_tensor* weight, float eps) {
  return norm(g, x, {weight, nullptr, nullptr, nullptr}, {.flags = Note::kRms, .eps = eps});
}

ggml_tensor* layer_norm(Graph& g, ggml_tensor* x, ggml_tensor* weight, ggml_tensor* bias, float eps) {
  return norm(g, x, {weight, bias, nullptr, nullptr}, {.eps = eps});
}

ggml_tensor* modulate(Graph& g, ggml_tensor* x, ggml_tensor* scale, ggml_tensor* shift) {
  scale = dense_rows(g, scale);
  if (shift) shift = dense_rows(g, shift);
  if (const Note n = note(x); n.made == Made::row_norm) {  // both in one pass
    int next = 1;
    ggml_tensor* weight = n.has(Note::kWeight) ? x->src[next++] : nullptr;
    ggml_tensor* bias = n.has(Note::kBias) ? x->src[next] : nullptr;
    return norm(g, x->src[0], {weight, bias, scale, shift}, {.flags = n.flags & Note::kRms, .eps = n.eps});
  }
  x = dense_rows(g, x);
  std::vector<ggml_tensor*> inputs{x, scale};
  if (shift) inputs.push_back(shift);
  ggml_tensor* y = op(g, "modulate", sizes(x), inputs, 0, [has_shift = shift != nullptr](const OpRun& r) {
    const ggml_tensor *in = r.out->src[0], *s = r.out->src[1], *t = has_shift ? r.out->src[2] : nullptr;
    for_rows(r.pool, in, [&](int64_t i1, int64_t i2, int64_t i3) {
      kernels::modulate(row(in, i1, i2, i3), row(s, i1, i2, i3), t ? row(t, i1, i2, i3) : nullptr, in->ne[0],
                        row(r.out, i1, i2, i3));
    });
  });
  return set_note(y, {.made = Made::pointwise, .reusable = over(x)});
}

ggml_tensor* unary(Graph& g, ggml_tensor* x, Unary f) {
  x = dense_rows(g, x);
  ggml_tensor* y = op(g, "unary", sizes(x), {x}, 0, [f](const OpRun& r) {
    const ggml_tensor* in = r.out->src[0];
    auto* out = static_cast<float*>(r.out->data);
    if (ggml_is_contiguous(in)) {
      const auto* from = static_cast<const float*>(in->data);
      for_pieces(r.pool, ggml_nelements(in), [&](int64_t i, int64_t n) { apply(f, from + i, n, out + i); });
      return;
    }
    for_rows(r.pool, in, [&](int64_t i1, int64_t i2, int64_t i3) {
      apply(f, row(in, i1, i2, i3), in->ne[0], row(r.out, i1, i2, i3));
    });
  });
  return set_note(y, {.made = Made::pointwise, .reusable = over(x)});
}

ggml_tensor* scale(Graph& g, ggml_tensor* x, float s) {
  x = dense_rows(g, x);
  ggml_tensor* y = op(g, "scale", sizes(x), {x}, 0, [s](const OpRun& r) {
    const ggml_tensor* in = r.out->src[0];
    for_rows(r.pool, in, [&](int64_t i1, int64_t i2, int64_t i3) {
      kernels::scale(row(in, i1, i2, i3), s, in->ne[0], row(r.out, i1, i2, i3));
    });
  });
  return set_note(y, {.made = Made::pointwise, .reusable = over(x)});
}

ggml_tensor* binary(Graph& g, ggml_tensor* a, ggml_tensor* b, Binary f) {
  a = dense_rows(g, a);
  b = dense_rows(g, b);
  ggml_tensor* result = op(g, "binary", sizes(a), {a, b}, 0, [f](const OpRun& r) {
    const ggml_tensor *p = r.out->src[0], *q = r.out->src[1];
    auto* out = static_cast<float*>(r.out->data);
    if (flat(p, q)) {
      const auto *x = static_cast<const float*>(p->data), *y = static_cast<const float*>(q->data);
      for_pieces(r.pool, ggml_nelements(p), [&](int64_t i, int64_t n) { apply(f, x + i, y + i, n, out + i); });
      return;
    }
    for_rows(r.pool, p, [&](int64_t i1, int64_t i2, int64_t i3) {
      apply_repeated(f, row(p, i1, i2, i3), row(q, i1, i2, i3), p->ne[0], q->ne[0], row(r.out, i1, i2, i3));
    });
  });
  return set_note(result, {.made = Made::pointwise, .reusable = over(a)});
}

ggml_tensor* rope(Graph& g, ggml_tensor* x, ggml_tensor* cos, ggml_tensor* sin, bool adjacent) {
  x = dense_rows(g, x);
  return op(g, "rope", sizes(x), {x, cos, sin}, 0, [adjacent](const OpRun& r) {
    const ggml_tensor *in = r.out->src[0], *c = r.out->src[1], *s = r.out->src[2];
    for_rows(r.pool, in, [&](int64_t head, int64_t token, int64_t b) {
      const float *from = row(in, head, token, b), *cr = row(c, 0, token, b), *sr = row(s, 0, token, b);
      float* to = row(r.out, head, token, b);
      if (adjacent)
        rotate_adjacent(from, cr, sr, in->ne[0], to);
      else
        rotate_half(from, cr, sr, in->ne[0], to);
    });
  });
}

ggml_tensor* copy(Graph& g, ggml_tensor* x) {
  return op(g, "copy", sizes(x), {x}, 0, [](const OpRun& r) {
    const ggml_tensor* in = r.out->src[0];
    const int64_t n = in->ne[0];
    if (in->nb[0] == sizeof(float)) {
      for_rows(r.pool, in, [&](int64_t i1, int64_t i2, int64_t i3) {
        std::copy_n(row(in, i1, i2, i3), n, row(r.out, i1, i2, i3));
      });
      return;
    }
    // Turned over: squares of 16 x 16, so that every cache line is used while it is there.
    constexpr int64_t kSide = 16;
    const int64_t n1 = in->ne[1], n2 = in->ne[2], columns = (n1 + kSide - 1) / kSide;
    r.pool.run(columns * n2 * in->ne[3], [&](int64_t task, int) {
      const int64_t i1 = task % columns * kSide, i2 = task / columns % n2, i3 = task / columns / n2;
      const int64_t end1 = std::min(n1, i1 + kSide);
      const auto* from = static_cast<const std::byte*>(in->data) + static_cast<size_t>(i2) * in->nb[2] +
                         static_cast<size_t>(i3) * in->nb[3];
      for (int64_t i0 = 0; i0 < n; i0 += kSide)
        for (int64_t j = i1; j < end1; ++j) {
          float* to = row(r.out, j, i2, i3);
          for (int64_t i = i0; i < std::min(n, i0 + kSide); ++i)
            std::memcpy(to + i, from + static_cast<size_t>(i) * in->nb[0] + static_cast<size_t>(j) * in->nb[1],
                        sizeof(float));
        }
    });
  });
}

ggml_tensor* concat(Graph& g, ggml_tensor* a, ggml_tensor* b, int dim) {
  a = dense_rows(g, a);
  b = dense_rows(g, b);
  std::array<int64_t, 4> ne = sizes(a);
  ne[static_cast<size_t>(dim)] += b->ne[dim];
  return op(g, "concat", ne, {a, b}, 0, [dim](const OpRun& r) {
    const ggml_tensor *p = r.out->src[0], *q = r.out->src[1];
    for_rows(r.pool, r.out, [&](int64_t i1, int64_t i2, int64_t i3) {
      float* to = row(r.out, i1, i2, i3);
      if (dim == 0) {
        std::copy_n(row(p, i1, i2, i3), p->ne[0], to);
        std::copy_n(row(q, i1, i2, i3), q->ne[0], to + p->ne[0]);
        return;
      }
      int64_t i[4] = {0, i1, i2, i3};
      const bool first = i[dim] < p->ne[dim];
      if (!first) i[dim] -= p->ne[dim];
      std::copy_n(row(first ? p : q, i[1], i[2], i[3]), p->ne[0], to);
    });
  });
}

}  // namespace danqing::kernels
