#include "sampling/token_sampler.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

namespace danqing {
namespace {

constexpr float kRemoved = -std::numeric_limits<float>::infinity();

int32_t argmax(std::span<const float> logits) {
  int32_t best = -1;
  float value = kRemoved;
  for (size_t i = 0; i < logits.size(); ++i)
    if (logits[i] > value) best = static_cast<int32_t>(i), value = logits[i];  // false for NaN
  return best;
}

// exp(x - max) in place, zero for what is removed; returns the sum.
double exponentials(std::span<float> scores) {
  const float top = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (float& s : scores) sum += s = std::exp(s - top);
  return sum;
}

void keep_top_k(std::span<float> scores, size_t k) {
  std::vector<float> sorted(scores.begin(), scores.end());
  std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(k - 1), sorted.end(), std::greater<>());
  const float threshold = sorted[k - 1];
  for (float& s : scores)
    if (s < threshold) s = kRemoved;
}

// Removes from the least likely upwards while the removed mass stays within 1 - top_p; the likeliest always stays.
void keep_top_p(std::span<float> scores, float top_p) {
  std::vector<uint32_t> order;
  for (uint32_t i = 0; i < scores.size(); ++i)
    if (scores[i] != kRemoved) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return scores[a] < scores[b]; });
  std::vector<float> weights(order.size());
  for (size_t i = 0; i < order.size(); ++i) weights[i] = scores[order[i]];
  const double sum = exponentials(weights);
  // The decimal that the user wrote, not its f32 neighbour: 1 - 0.95f is 3 ulp away from 0.05f.
  const auto limit = static_cast<float>(1.0 - std::round(static_cast<double>(top_p) * 1e6) * 1e-6);
  double removed = 0;
  for (size_t i = 0; i + 1 < order.size(); ++i) {
    removed += static_cast<float>(weights[i] / sum);
    if (static_cast<float>(removed) > limit) break;
    scores[order[i]] = kRemoved;
  }
}

}  // namespace

std::vector<float> token_probabilities(std::span<const float> logits, const TokenSamplerOptions& options) {
  const int32_t best = argmax(logits);
  std::vector<float> p(logits.size(), 0.0f);
  if (best < 0) return p;
  const float top = logits[static_cast<size_t>(best)] / options.temperature;
  if (!(options.temperature > 0) || !std::isfinite(top)) {  // a temperature near 0 overflows: the limit is greedy too
    p[static_cast<size_t>(best)] = 1;
    return p;
  }
  for (size_t i = 0; i < p.size(); ++i) {
    const float score = logits[i] / options.temperature;
    p[i] = std::isnan(score) ? kRemoved : score;
  }
  if (options.top_k > 0 && static_cast<size_t>(options.top_k) < p.size())
    keep_top_k(p, static_cast<size_t>(options.top_k));
  if (options.top_p < 1) keep_top_p(p, std::max(options.top_p, 0.0f));
  const double sum = exponentials(p);
  for (float& x : p) x = static_cast<float>(x / sum);
  return p;
}

int32_t choose_token(std::span<const float> logits, const TokenSamplerOptions& options, CpuGenerator& generator) {
  const int32_t best = argmax(logits);
  if (best < 0 || !(options.temperature > 0)) return best;
  return static_cast<int32_t>(generator.draw_one(token_probabilities(logits, options)));
}

}  // namespace danqing
