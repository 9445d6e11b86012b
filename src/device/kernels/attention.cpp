#include "device/kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "device/kernels/activation.h"
#include "device/kernels/linear.h"
#include "device/kernels/micro.h"
#include "device/kernels/rows.h"

namespace danqing::kernels {
namespace {

constexpr int64_t kQueries = 96;            ///< of a task, rounded up to whole tiles
constexpr int64_t kKeys = 256;              ///< of a block: its scores stay in the second-level cache
constexpr int64_t kPackedBytes = 16 << 20;  ///< packed keys and values that exist at a time
/// Of scales in a row. Longer heads (a VAE's one of 512, whose keys may come out of a cache of tiles) stay in f32.
constexpr int64_t kMaxBlocks = 2;
constexpr int64_t kFewQueries = 8;  ///< up to here keys are read where they lie
constexpr float kNothing = -std::numeric_limits<float>::infinity();

int64_t round_up(int64_t a, int64_t b) { return (a + b - 1) / b * b; }

/// Sizes, from the inputs alone; memory is counted in floats.
struct Shape {
  bool integers;  ///< both products in the int16 format, else in f32
  int64_t batch, queries, heads, keys, kv_heads, dim, value_dim;
  float scale;
  int64_t mr = micro_kernels()->mr, nr = micro_kernels()->nr;
  int64_t block_queries = round_up(kQueries, mr);
  int64_t padded_values = 0;
  int64_t segment = 0;  ///< keys packed at a time, whole blocks
  int64_t group = 1;    ///< key heads packed at a time

  Shape(const ggml_tensor* q, const ggml_tensor* k, const ggml_tensor* v, float s, bool i16)
      : integers(i16 && q->ne[0] % kBlockK == 0 && q->ne[0] / kBlockK <= kMaxBlocks),
        batch(q->ne[3]),
        queries(q->ne[2]),
        heads(q->ne[1]),
        keys(k->ne[2]),
        kv_heads(k->ne[1]),
        dim(q->ne[0]),
        value_dim(v->ne[0]),
        scale(s) {
    padded_values = round_up(value_dim, nr);
    const int64_t key_bytes = (kKeys * row_floats(dim) + block_values()) * 4 / kKeys;
    segment = std::clamp<int64_t>(kPackedBytes / key_bytes / kKeys * kKeys, kKeys, round_up(keys, kKeys));
    group = std::clamp<int64_t>(kPackedBytes / (segment * key_bytes), 1, kv_heads);
  }
  /// Of n values of one row in a strip, its scales included.
  int64_t row_floats(int64_t n) const { return integers ? n / 2 + n / kBlockK : n; }
  int64_t block_values() const { return padded_values * row_floats(kKeys); }  ///< of a block of keys
  int64_t query_heads() const { return heads / kv_heads; }                    ///< that share a key head
  int64_t query_blocks() const { return (queries + block_queries - 1) / block_queries; }
  size_t packed_head() const {
    return static_cast<size_t>(segment * row_floats(dim) + segment / kKeys * block_values());
  }
  int64_t narrow_floats() const { return integers ? 4 * std::max(dim, kKeys) / 2 : 0; }  ///< four rows of integers
  size_t worker() const {
    return static_cast<size_t>(block_queries * (row_floats(dim) + kKeys + row_floats(kKeys) + padded_values) +
                               narrow_floats() + (integers ? padded_values * kKeys : 0));
  }
  size_t scratch(int threads) const {  // in floats
    return static_cast<size_t>(group) * packed_head() + static_cast<size_t>(threads) * worker() +
           static_cast<size_t>(group * query_heads() * query_blocks() * block_queries * 2);
  }
};

const std::byte* row(const ggml_tensor* t, int64_t b, int64_t i, int64_t h) {
  return static_cast<const std::byte*>(t->data) + static_cast<size_t>(b) * t->nb[3] +
         static_cast<size_t>(i) * t->nb[2] + static_cast<size_t>(h) * t->nb[1];
}

const float* mask_row(const ggml_tensor* m, int64_t b, int64_t i) {
  if (!m) return nullptr;
  return reinterpret_cast<const float*>(static_cast<const std::byte*>(m->data) +
                                        static_cast<size_t>(m->ne[3] > 1 ? b : 0) * m->nb[3] +
                                        static_cast<size_t>(m->ne[1] > 1 ? i : 0) * m->nb[1]);
}

/// One call of the operation.
struct Pass {
  Shape s;
  const ggml_tensor *q, *k, *v, *mask;
  float* out;
  float *packed, *workers, *states;
  DType type;

  float* out_row(int64_t b, int64_t i, int64_t h) const {
    return out + ((b * s.queries + i) * s.heads + h) * s.value_dim;
  }
  float* packed_keys(int64_t head) const { return packed + static_cast<size_t>(head) * s.packed_head(); }
  float* packed_values(int64_t head) const { return packed_keys(head) + s.segment * s.row_floats(s.dim); }
  /// A worker's memory: [queries][scores][weights][sums][four rows of integers][values turned over]
  float* queries_of(int worker) const { return workers + static_cast<size_t>(worker) * s.worker(); }
  int16_t* narrow_of(int worker) const {
    return reinterpret_cast<int16_t*>(
        queries_of(worker) + s.block_queries * (s.row_floats(s.dim) + kKeys + s.row_floats(kKeys) + s.padded_values));
  }
  float* turned_of(int worker) const { return reinterpret_cast<float*>(narrow_of(worker)) + s.narrow_floats(); }

  /// Up to four rows of n values to columns `first` and on of a strip of `width` rows, whose scales lie behind its
  /// `room` values a row. The strip's other columns of the four become zero.
  void place(const float* const* rows, int count, int64_t n, int64_t room, int64_t width, int64_t first, float* strip,
             int16_t* narrow) const {
    if (!s.integers) {
      const void* wide[4] = {rows[0], rows[1], rows[2], rows[3]};
      return interleave(wide, count, n, width, first, strip);
    }
    float* scales = strip + width * room / 2;
    const int64_t padded = round_up(n, kBlockK), blocks = padded / kBlockK;
    const void* whole[4] = {};
    for (int64_t r = 0; r < std::min<int64_t>(4, width - first); ++r) {
      float own[kMaxBlocks] = {};
      if (r < count) {
        int16_t* to = narrow + r * padded;
        quantize_i16(rows[r], n, false, to, own);
        whole[r] = to;
      }
      for (int64_t b = 0; b < blocks; ++b) scales[b * width + first + r] = own[b];
    }
    interleave(whole, count, padded / 2, width, first, strip);
  }

  /// c[mr][ldc] (+)= a b over `depth` values of strips that have room for `room`.
  void multiply(int64_t depth, int64_t room, const float* a, const float* b, float* c, int64_t ldc, bool more) const {
    const MicroKernels& m = *micro_kernels();
    if (!s.integers) return m.f32(depth, a, b, c, ldc, more);
    m.i16(round_up(depth, kBlockK), reinterpret_cast<const int16_t*>(a), a + s.mr * room / 2,
          reinterpret_cast<const int16_t*>(b), b + s.nr * room / 2, c, ldc, more);
  }

  /// Keys first .. last of one head as strips [dim][nr], values as strips [keys of a block][nr].
  void pack(int64_t b, int64_t head, int64_t slot, int64_t segment_begin, int64_t first, int worker) const {
    const int64_t last = std::min(first + kKeys, s.keys);
    std::vector<float> wide(type == DType::f32 ? 0 : static_cast<size_t>(4 * std::max(s.dim, s.padded_values)));
    const auto widened = [&](const ggml_tensor* t, int64_t i, int64_t n, int64_t slot4) {
      const std::byte* from = row(t, b, i, head);
      if (type == DType::f32) return reinterpret_cast<const float*>(from);
      float* to = wide.data() + slot4 * n;
      expand(type, from, n, to);
      return static_cast<const float*>(to);
    };
    const int64_t offset = first - segment_begin, key_floats = s.row_floats(s.dim);
    float* keys = packed_keys(slot) + offset * key_floats;
    for (int64_t strip = first; strip < first + kKeys; strip += s.nr, keys += s.nr * key_floats)
      for (int64_t i = 0; i < s.nr; i += 4) {
        const float* rows[4] = {};
        const auto n = static_cast<int>(std::clamp<int64_t>(last - strip - i, 0, 4));
        for (int r = 0; r < n; ++r) rows[r] = widened(k, strip + i + r, s.dim, r);
        place(rows, n, s.dim, s.dim, s.nr, i, keys, narrow_of(worker));
      }
    float* values = packed_values(slot) + offset / kKeys * s.block_values();
    if (s.integers) return pack_turned(widened, b, first, last, values, worker);
    for (int64_t i = 0; i < kKeys; ++i) {
      const float* from = first + i < last ? widened(v, first + i, s.value_dim, 0) : nullptr;
      for (int64_t c = 0; c < s.padded_values; c += s.nr) {
        float* to = values + c * kKeys + i * s.nr;
        const int64_t n = from ? std::clamp<int64_t>(s.value_dim - c, 0, s.nr) : 0;
        if (n > 0) std::copy_n(from + c, n, to);
        std::fill(to + n, to + s.nr, 0.0f);
      }
    }
  }

  /// Values as integers share their scales along the keys: first each column becomes a row.
  template <class Widened>
  void pack_turned(const Widened& widened, int64_t b, int64_t first, int64_t last, float* values, int worker) const {
    float* turned = turned_of(worker);
    // What fills up a short item must not coarsen the scales of its values.
    const float* padding = mask && mask->ne[1] == 1 ? mask_row(mask, b, 0) : nullptr;
    const std::vector<float> nothing(padding ? static_cast<size_t>(s.value_dim) : 0, 0.0f);
    for (int64_t i = 0; i < kKeys; i += 4) {
      const void* rows[4] = {};
      const auto n = static_cast<int>(std::clamp<int64_t>(last - first - i, 0, 4));
      for (int r = 0; r < n; ++r)
        rows[r] =
            padding && padding[first + i + r] == kNothing ? nothing.data() : widened(v, first + i + r, s.value_dim, r);
      interleave(rows, n, s.value_dim, kKeys, i, turned);
    }
    for (int64_t c = 0; c < s.padded_values; c += s.nr, values += s.nr * s.row_floats(kKeys))
      for (int64_t i = 0; i < s.nr; i += 4) {
        const float* rows[4] = {};
        const auto n = static_cast<int>(std::clamp<int64_t>(s.value_dim - c - i, 0, 4));
        for (int r = 0; r < n; ++r) rows[r] = turned + (c + i + r) * kKeys;
        place(rows, n, kKeys, kKeys, s.nr, i, values, narrow_of(worker));
      }
  }

  /// The queries of one block against the packed segment.
  void block(int64_t b, int64_t h, int64_t slot, int64_t block_index, float* state, int64_t segment_begin,
             int worker) const {
    const int64_t query_floats = s.row_floats(s.dim), weight_floats = s.row_floats(kKeys);
    float* qs = queries_of(worker);
    float* scores = qs + s.block_queries * query_floats;
    float* weights = scores + s.block_queries * kKeys;
    float* sums = weights + s.block_queries * weight_floats;
    int16_t* narrow = narrow_of(worker);
    const int64_t first = block_index * s.block_queries, n = std::min(s.block_queries, s.queries - first);
    const bool begins = segment_begin == 0;
    for (int64_t i = 0; i < n; i += s.mr)
      for (int64_t j = 0; j < s.mr; j += 4) {
        const float* rows[4] = {};
        const auto count = static_cast<int>(std::clamp<int64_t>(n - i - j, 0, std::min<int64_t>(4, s.mr - j)));
        for (int r = 0; r < count; ++r) rows[r] = reinterpret_cast<const float*>(row(q, b, first + i + j + r, h));
        place(rows, count, s.dim, s.dim, s.mr, j, qs + i * query_floats, narrow);
      }
    const int64_t whole = round_up(n, s.mr);
    for (int64_t i = 0; i < whole; ++i) {
      if (begins) state[2 * i] = kNothing, state[2 * i + 1] = 0;
      float* o = sums + i * s.padded_values;
      if (begins || i >= n)
        std::fill_n(o, s.padded_values, 0.0f);
      else
        std::copy_n(out_row(b, first + i, h), s.value_dim, o);
    }
    const int64_t end = std::min(segment_begin + s.segment, s.keys);
    for (int64_t key = segment_begin; key < end; key += kKeys) {
      const int64_t keys = std::min(kKeys, end - key), offset = key - segment_begin;
      const float* k_block = packed_keys(slot) + offset * query_floats;
      for (int64_t j = 0; j < keys; j += s.nr)
        for (int64_t i = 0; i < whole; i += s.mr)
          multiply(s.dim, s.dim, qs + i * query_floats, k_block + j * query_floats, scores + i * kKeys + j, kKeys,
                   false);
      for (int64_t i = 0; i < whole; ++i) {
        float* p = scores + i * kKeys;
        if (i < n)
          soften(p, keys, mask_row(mask, b, first + i), key, state + 2 * i, sums + i * s.padded_values);
        else
          std::fill_n(p, keys, 0.0f);
      }
      for (int64_t i = 0; i < whole; i += s.mr)
        for (int64_t j = 0; j < s.mr; j += 4) {
          const float* p = scores + (i + j) * kKeys;
          const float* rows[4] = {p, p + kKeys, p + 2 * kKeys, p + 3 * kKeys};
          place(rows, static_cast<int>(std::min<int64_t>(4, s.mr - j)), keys, kKeys, s.mr, j,
                weights + i * weight_floats, narrow);
        }
      const float* v_block = packed_values(slot) + offset / kKeys * s.block_values();
      for (int64_t c = 0; c < s.padded_values; c += s.nr)
        for (int64_t i = 0; i < whole; i += s.mr)
          multiply(keys, kKeys, weights + i * weight_floats, v_block + c * weight_floats,
                   sums + i * s.padded_values + c, s.padded_values, true);
    }
    const bool done = end == s.keys;
    for (int64_t i = 0; i < n; ++i) {
      const float total = state[2 * i + 1];
      scale_row(sums + i * s.padded_values, done ? (total > 0 || total != total ? 1.0f / total : 0.0f) : 1.0f,
                out_row(b, first + i, h));
    }
  }

  void scale_row(const float* from, float factor, float* to) const { kernels::scale(from, factor, s.value_dim, to); }

  /// Scores of one query to exp(score - running maximum); the sums so far follow the maximum.
  void soften(float* p, int64_t n, const float* m, int64_t key, float* state, float* o) const {
    kernels::scale(p, s.scale, n, p);
    if (m) add(p, m + key, n, p);
    const float before = state[0], largest = std::max(before, maximum(p, n));
    if (largest == kNothing) {
      std::fill_n(p, n, 0.0f);
      return;
    }
    const float sum = exp_minus(p, n, largest, p);
    const float keep = before == largest ? 1.0f : std::exp(before - largest);
    if (keep != 1.0f) kernels::scale(o, keep, s.padded_values, o);
    state[0] = largest;
    state[1] = state[1] * keep + sum;
  }

  void run(Pool& pool) const {
    const int64_t shared = s.query_heads(), blocks = s.query_blocks();
    for (int64_t b = 0; b < s.batch; ++b)
      for (int64_t head = 0; head < s.kv_heads; head += s.group) {
        const int64_t heads = std::min(s.group, s.kv_heads - head);
        for (int64_t begin = 0; begin < s.keys; begin += s.segment) {
          const int64_t key_blocks = (std::min(s.segment, s.keys - begin) + kKeys - 1) / kKeys;
          pool.run(heads * key_blocks, [&](int64_t task, int worker) {
            pack(b, head + task / key_blocks, task / key_blocks, begin, begin + task % key_blocks * kKeys, worker);
          });
          pool.run(heads * shared * blocks, [&](int64_t task, int worker) {
            const int64_t h = task / blocks, i = task % blocks;
            block(b, head * shared + h, h / shared, i, states + (h * blocks + i) * s.block_queries * 2, begin, worker);
          });
        }
      }
  }
};

/// Few queries: every key is used too few times for packing to pay. Scores of a head lie in the scratch.
void run_few(const Shape& s, const OpRun& r, const ggml_tensor* mask) {
  const ggml_tensor *q = r.out->src[0], *k = r.out->src[1], *v = r.out->src[2];
  const DType type = *dtype_from_ggml(k->type);
  auto* scratch = reinterpret_cast<float*>(r.scratch);
  const int64_t per_worker = round_up(s.keys, 16) + round_up(s.value_dim, 16);
  r.pool.run(s.batch * s.heads, [&](int64_t task, int worker) {
    const int64_t b = task / s.heads, h = task % s.heads, hk = h / s.query_heads();
    float* p = scratch + worker * per_worker;
    float* wide = p + round_up(s.keys, 16);
    for (int64_t i = 0; i < s.queries; ++i) {
      const auto* query = reinterpret_cast<const float*>(row(q, b, i, h));
      for (int64_t j = 0; j < s.keys; ++j) dot(type, row(k, b, j, hk), query, 0, 1, s.dim, p + j);
      scale(p, s.scale, s.keys, p);
      if (const float* m = mask_row(mask, b, i)) add(p, m, s.keys, p);
      const float largest = maximum(p, s.keys);
      float* out = static_cast<float*>(r.out->data) + ((b * s.queries + i) * s.heads + h) * s.value_dim;
      std::fill_n(out, s.value_dim, 0.0f);
      if (largest == kNothing) continue;
      const float sum = exp_minus(p, s.keys, largest, p);
      for (int64_t j = 0; j < s.keys; ++j) {
        if (p[j] == 0.0f) continue;
        const std::byte* from = row(v, b, j, hk);
        const auto* value = reinterpret_cast<const float*>(from);
        if (type != DType::f32) {
          expand(type, from, s.value_dim, wide);
          value = wide;
        }
        add_scaled(value, p[j], s.value_dim, out);
      }
      scale(out, 1.0f / sum, s.value_dim, out);
    }
  });
}

}  // namespace

bool attends(ggml_type kv) { return kv == GGML_TYPE_F32 || kv == GGML_TYPE_F16 || kv == GGML_TYPE_BF16; }

ggml_tensor* attention(Graph& g, ggml_tensor* q, ggml_tensor* k, ggml_tensor* v, ggml_tensor* mask, float scale) {
  const Shape s(q, k, v, scale, made_of_integers(g, v));
  const int threads = g.device().pool()->threads();
  std::vector<ggml_tensor*> inputs{q, k, v};
  if (mask) inputs.push_back(mask);
  const std::array<int64_t, 4> ne{s.value_dim * s.heads, s.queries, s.batch, 1};
  if (s.queries <= kFewQueries) {
    const auto bytes =
        static_cast<size_t>(threads * (round_up(s.keys, 16) + round_up(s.value_dim, 16))) * sizeof(float);
    return op(g, "attention", ne, inputs, bytes,
              [s, masked = mask != nullptr](const OpRun& r) { run_few(s, r, masked ? r.out->src[3] : nullptr); });
  }
  return op(g, "attention", ne, inputs, s.scratch(threads) * sizeof(float),
            [s, masked = mask != nullptr](const OpRun& r) {
              auto* base = reinterpret_cast<float*>(r.scratch);
              float* workers = base + static_cast<size_t>(s.group) * s.packed_head();
              const Pass pass{s,
                              r.out->src[0],
                              r.out->src[1],
                              r.out->src[2],
                              masked ? r.out->src[3] : nullptr,
                              static_cast<float*>(r.out->data),
                              base,
                              workers,
                              workers + static_cast<size_t>(r.pool.threads()) * s.worker(),
                              *dtype_from_ggml(r.out->src[1]->type)};
              pass.run(r.pool);
            });
}

}  // namespace danqing::kernels
