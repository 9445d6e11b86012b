// Rotary positions on the host. Operations and their precision follow transformers' modeling_rope_utils
// (_compute_yarn_parameters): scalars in f64, everything per frequency in f32.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "models/mistral3/config.h"

namespace danqing::mistral3 {
namespace {

double mscale_term(double factor, double mscale) { return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0; }

/// The (fractional) frequency index that turns `rotations` times within the original context.
double correction_dim(const Config& c, double rotations) {
  return static_cast<double>(c.head_dim) *
         std::log(static_cast<double>(c.original_max_position_embeddings) / (rotations * 2 * std::numbers::pi)) /
         (2 * std::log(c.rope_theta));
}

}  // namespace

RopeTable rope_table(const Config& c) {
  const int64_t half = c.head_dim / 2;
  RopeTable table;
  table.inv_freq.resize(static_cast<size_t>(half));
  double low = 0, high = 0;
  if (c.yarn) {
    low = correction_dim(c, c.beta_fast), high = correction_dim(c, c.beta_slow);
    if (c.truncate) low = std::floor(low), high = std::ceil(high);
    low = std::max(low, 0.0), high = std::min(high, static_cast<double>(c.head_dim - 1));
    if (low == high) high += 0.001;
    const bool both = c.mscale != 0 && c.mscale_all_dim != 0;
    table.attention_factor =
        static_cast<float>(c.attention_factor != 0 ? c.attention_factor
                           : both ? mscale_term(c.factor, c.mscale) / mscale_term(c.factor, c.mscale_all_dim)
                                  : mscale_term(c.factor, 1));
  }
  for (int64_t i = 0; i < half; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(c.head_dim);
    const float wavelength = std::pow(static_cast<float>(c.rope_theta), exponent);
    const float plain = 1.0f / wavelength;
    float& out = table.inv_freq[static_cast<size_t>(i)];
    out = plain;
    if (!c.yarn) continue;
    const float ramp = (static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low);
    const float keep = 1.0f - std::clamp(ramp, 0.0f, 1.0f);
    const float slowed = 1.0f / (static_cast<float>(c.factor) * wavelength);
    out = slowed * (1.0f - keep) + plain * keep;
  }
  return table;
}

float query_scale(const Config& c, int64_t position) {
  if (c.llama_4_scaling_beta == 0) return 1;
  const float turns = std::floor(static_cast<float>(position) / static_cast<float>(c.original_max_position_embeddings));
  return 1.0f + static_cast<float>(c.llama_4_scaling_beta) * std::log(1.0f + turns);
}

PositionTables position_tables(const Config& c, const RopeTable& rope, int64_t first, int64_t count) {
  const size_t half = rope.inv_freq.size(), dim = 2 * half, n = static_cast<size_t>(count);
  PositionTables t;
  t.cos.resize(n * dim);
  t.sin.resize(n * dim);
  bool scaled = false;
  std::vector<float> scales(n);
  for (size_t p = 0; p < n; ++p) {
    const int64_t position = first + static_cast<int64_t>(p);
    for (size_t i = 0; i < half; ++i) {
      const float angle = static_cast<float>(position) * rope.inv_freq[i];
      t.cos[p * dim + i] = t.cos[p * dim + half + i] = std::cos(angle) * rope.attention_factor;
      t.sin[p * dim + i] = t.sin[p * dim + half + i] = std::sin(angle) * rope.attention_factor;
    }
    scales[p] = query_scale(c, position);
    scaled = scaled || scales[p] != 1.0f;
  }
  if (scaled) t.query_scale = std::move(scales);
  return t;
}

std::vector<float> causal_mask(const Config& c, int64_t first, int64_t rows, int64_t columns) {
  std::vector<float> mask(static_cast<size_t>(rows * columns), -std::numeric_limits<float>::infinity());
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t end = std::min(first + r + 1, columns);
    const int64_t begin = c.sliding_window > 0 ? std::max<int64_t>(0, first + r + 1 - c.sliding_window) : 0;
    const auto row = mask.begin() + r * columns;
    if (begin < end) std::fill(row + begin, row + end, 0.0f);
  }
  return mask;
}

}  // namespace danqing::mistral3
