#include "device/kernels/conv.h"

#include <algorithm>
#include <climits>

#include "device/kernels/channels_last.h"
#include "device/kernels/conv_winograd.h"
#include "device/kernels/gemm.h"
#include "device/kernels/note.h"

namespace danqing::kernels {
namespace {

constexpr int64_t kLeastChannels = 16;  ///< with fewer, the transforms cost more than they save

const float* floats(const ggml_tensor* t) { return static_cast<const float*>(t->data); }
size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

/// All inputs of a convolution. Pictures are contiguous [C, W, H, B].
struct Parts {
  ggml_tensor *x = nullptr, *kernel = nullptr, *bias = nullptr, *statistics = nullptr, *residual = nullptr;
};

ConvShape shape_of(const Parts& p, const Note& n) {
  ConvShape s;
  s.c = p.x->ne[0], s.w = p.x->ne[1], s.h = p.x->ne[2], s.batch = p.x->ne[3];
  s.o = p.kernel->ne[3];
  s.doubled = n.has(Note::kDoubled);
  s.pointwise = p.kernel->ne[0] == 1;
  s.pad_left = n.left, s.pad_top = n.top;
  if (s.doubled) {  // computed in pairs from the zeros on: fewer zeros begin one result, or one pair, later
    s.cut_left = (1 - n.left) % 2, s.cut_top = (1 - n.top) % 2;
    s.pad_left = 1 - (1 - n.left) / 2, s.pad_top = 1 - (1 - n.top) / 2;
  }
  const int64_t times = s.doubled ? 2 : 1, cut = p.kernel->ne[0] - 1;
  s.out_w = s.w * times + n.left + n.right - cut;
  s.out_h = s.h * times + n.top + n.bottom - cut;
  return s;
}

/// 3x3 with stride 1, 1x1 without zeros around.
ggml_tensor* append(Graph& g, const Parts& p, Note n) {
  const ConvShape s = shape_of(p, n);
  std::vector<ggml_tensor*> inputs{p.x, p.kernel};
  const auto join = [&](ggml_tensor* t, int32_t flag) {
    n.flags = t ? n.flags | flag : n.flags & ~flag;
    if (t) inputs.push_back(t);
  };
  join(p.bias, Note::kBias);
  join(p.statistics, Note::kNorm);
  join(p.residual, Note::kResidual);
  n.made = Made::conv;
  n.reusable = !s.doubled && s.out_w == s.w && s.out_h == s.h ? 1 : 0;  // where the channels agree too
  if (p.residual) n.reusable |= 1 << (inputs.size() - 1);
  ggml_tensor* y = op(g, "conv2d", {s.o, s.out_w, s.out_h, s.batch}, inputs,
                      conv_scratch(s, g.device().pool()->threads()), [s, n](const OpRun& r) {
                        const auto* src = r.out->src;
                        ConvData d{floats(src[0]), floats(src[1])};
                        int next = 2;
                        if (n.has(Note::kBias)) d.bias = floats(src[next++]);
                        if (n.has(Note::kNorm)) d.norm = floats(src[next++]);
                        if (n.has(Note::kResidual)) d.residual = floats(src[next++]);
                        d.silu = n.has(Note::kSilu);
                        d.y = static_cast<float*>(r.out->data);
                        convolve(r.pool, s, d, r.scratch);
                      });
  return set_note(y, n);
}

/// Any kernel and stride: a product of the pixels under the kernel, in the order (ky, kx, c), with the kernel's rows.
struct Direct {
  int64_t c, w, h, o, kw, kh, out_w, out_h;
  Window window;

  /// Values k0 to k0 + kn - 1 of what lies under the kernel for result pixel `row`.
  const float* under(const float* x, int64_t row, int64_t k0, int64_t kn, float* buffer) const {
    const int64_t left = row % out_w * window.stride - window.left;
    const int64_t top = row / out_w % out_h * window.stride - window.top;
    x += row / (out_w * out_h) * h * w * c;
    for (int64_t done = 0; done < kn;) {
      const int64_t tap = (k0 + done) / c, first = (k0 + done) % c, n = std::min(c - first, kn - done);
      const int64_t px = left + tap % kw, py = top + tap / kw;
      const bool inside = px >= 0 && px < w && py >= 0 && py < h;
      const float* pixel = inside ? x + (py * w + px) * c + first : nullptr;
      if (inside && n == kn) return pixel;
      if (inside)
        std::copy_n(pixel, n, buffer + done);
      else
        std::fill_n(buffer + done, n, 0.0f);
      done += n;
    }
    return buffer;
  }
};

ggml_tensor* append_direct(Graph& g, const Parts& p, const Window& window, Format format) {
  Direct d{p.x->ne[0], p.x->ne[1], p.x->ne[2], p.kernel->ne[3], p.kernel->ne[0], p.kernel->ne[1], 0, 0, window};
  d.out_w = (d.w + window.left + window.right - d.kw) / window.stride + 1;
  d.out_h = (d.h + window.top + window.bottom - d.kh) / window.stride + 1;
  const int64_t batch = p.x->ne[3];
  Gemm shape;
  shape.m = batch * d.out_h * d.out_w, shape.n = d.o, shape.k = d.kw * d.kh * d.c, shape.format = format;
  shape.ldc = d.o;
  shape.keep_b = true;
  const size_t kernel_bytes = aligned(static_cast<size_t>(shape.n * shape.k) * sizeof(float));
  std::vector<ggml_tensor*> inputs{p.x, p.kernel};
  if (p.bias) inputs.push_back(p.bias);
  return op(g, "conv2d_direct", {d.o, d.out_w, d.out_h, batch}, inputs,
            kernel_bytes + gemm_scratch(shape, g.device().pool()->threads()), [=](const OpRun& r) {
              const float *x = floats(r.out->src[0]), *kernel = floats(r.out->src[1]);
              const float* bias = r.out->src[2] ? floats(r.out->src[2]) : nullptr;
              auto* rows = reinterpret_cast<float*>(r.scratch);
              const int64_t taps = d.kw * d.kh;
              for_ranges(r.pool, d.o, 1, [&](int64_t o, int64_t, int) {  // [O][C][ky][kx] -> [O][ky][kx][C]
                for (int64_t t = 0; t < taps; ++t)
                  for (int64_t c = 0; c < d.c; ++c) rows[(o * taps + t) * d.c + c] = kernel[(o * d.c + c) * taps + t];
              });
              Gemm product = shape;
              product.a = [&](int64_t row, int64_t k0, int64_t kn, float* buffer) {
                return d.under(x, row, k0, kn, buffer);
              };
              product.b = [&](int64_t row, int64_t k0, int64_t, float*) { return rows + row * shape.k + k0; };
              product.c = static_cast<float*>(r.out->data);
              if (bias)
                product.finish = [&](int64_t, int64_t n, int64_t count, float* y) {
                  for (int64_t i = 0; i < count; ++i) y[i] += bias[n + i];
                };
              multiply(r.pool, product, r.scratch + kernel_bytes);
            });
}

/// The parts of a convolution made by append().
Parts parts_of(ggml_tensor* conv, const Note& n) {
  Parts p{conv->src[0], conv->src[1]};
  int next = 2;
  if (n.has(Note::kBias)) p.bias = conv->src[next++];
  if (n.has(Note::kNorm)) p.statistics = conv->src[next++];
  if (n.has(Note::kResidual)) p.residual = conv->src[next++];
  return p;
}

}  // namespace

ggml_tensor* conv2d(Graph& g, ggml_tensor* x, ggml_tensor* kernel, ggml_tensor* bias, const Window& w, Format format) {
  Parts p{channels_last(g, x), kernel, bias};
  const bool zeros = w.left || w.right || w.top || w.bottom;
  const auto between = [&](int least, int most) {
    return std::min({w.left, w.right, w.top, w.bottom}) >= least &&
           std::max({w.left, w.right, w.top, w.bottom}) <= most;
  };
  const Note before = note(p.x);
  const bool doubled = before.made == Made::doubled && between(-1, 1);
  const bool three =
      kernel->ne[0] == 3 && kernel->ne[1] == 3 && kernel->ne[2] >= kLeastChannels && (doubled || between(0, INT_MAX));
  const bool one = kernel->ne[0] == 1 && kernel->ne[1] == 1 && !zeros;
  if (w.stride != 1 || (!three && !one)) return channels_last_view(g, append_direct(g, p, w, format));
  Note n{.made = Made::conv, .left = w.left, .right = w.right, .top = w.top, .bottom = w.bottom};
  if (before.made == Made::norm) {
    n.flags |= before.flags & Note::kSilu;
    p.statistics = p.x->src[1];
    p.x = p.x->src[0];
  } else if (doubled && three) {
    n.flags |= Note::kDoubled;
    p.x = p.x->src[0];
  }
  return channels_last_view(g, append(g, p, n));
}

ggml_tensor* add_to_conv(Graph& g, ggml_tensor* a, ggml_tensor* b) {
  const Note na = note(a), nb = note(b);
  const bool can_a = na.made == Made::conv && !na.has(Note::kResidual);
  const bool can_b = nb.made == Made::conv && !nb.has(Note::kResidual);
  if (!can_a && !can_b) return nullptr;
  // Of two, the one that is computed first (it is a's: operands are computed from left to right) adds nothing.
  const bool into_a = can_a && (!can_b || a->src[1]->ne[0] == 1);
  ggml_tensor *conv = into_a ? a : b, *other = into_a ? b : a;
  Parts p = parts_of(conv, into_a ? na : nb);
  p.residual = other;
  return append(g, p, into_a ? na : nb);
}

ggml_tensor* apply_norm(Graph& g, ggml_tensor* x, ggml_tensor* statistics, const Note& n) {
  const bool silu = n.has(Note::kSilu);
  ggml_tensor* y =
      op(g, "group_norm", {x->ne[0], x->ne[1], x->ne[2], x->ne[3]}, {x, statistics}, 0, [silu](const OpRun& r) {
        const int64_t c = r.out->ne[0], pixels = r.out->ne[1] * r.out->ne[2];
        const int64_t grain = std::max<int64_t>(1, (1 << 14) / c), pieces = (pixels + grain - 1) / grain;
        r.pool.run(pieces * r.out->ne[3], [&](int64_t task, int) {
          const int64_t b = task / pieces, first = task % pieces * grain;
          const float* s = floats(r.out->src[1]) + b * 3 * c;
          const ChannelNorm norm{s, s + c, s + 2 * c, silu};
          const int64_t at = (b * pixels + first) * c;
          prepare_pixels(floats(r.out->src[0]) + at, std::min(grain, pixels - first), c, &norm,
                         static_cast<float*>(r.out->data) + at, c);
        });
      });
  return set_note(y, {.made = Made::norm, .flags = n.flags & Note::kSilu, .reusable = 1});
}

ggml_tensor* upsample2(Graph& g, ggml_tensor* x) {
  ggml_tensor* b = channels_last(g, x);
  const int64_t c = b->ne[0], w = b->ne[1];
  ggml_tensor* y = op(g, "upsample", {c, 2 * w, 2 * b->ne[2], b->ne[3]}, {b}, 0, [c, w](const OpRun& r) {
    const float* from = floats(r.out->src[0]);
    auto* to = static_cast<float*>(r.out->data);
    r.pool.run(r.out->ne[2] / 2 * r.out->ne[3], [&](int64_t row, int) {
      const float* x0 = from + row * w * c;
      float* y0 = to + row * 4 * w * c;
      for (int64_t i = 0; i < 2 * w; ++i) std::copy_n(x0 + i / 2 * c, c, y0 + i * c);
      std::copy_n(y0, 2 * w * c, y0 + 2 * w * c);
    });
  });
  return channels_last_view(g, set_note(y, {.made = Made::doubled}));
}

}  // namespace danqing::kernels
