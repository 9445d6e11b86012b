// Choosing the next token, in the order transformers' generate() works: temperature, top-k, top-p (Holtzman et al.
// 2020), then one draw. Pure functions; any number of threads.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "sampling/random.h"

namespace danqing {

struct TokenSamplerOptions {
  float temperature = 0.6f;  ///< 0 (or less) = greedy (argmax, lowest id on ties)
  int top_k = 50;            ///< 0 (or less) = off
  float top_p = 0.95f;       ///< 1 (or more) = off; 0 keeps the likeliest only
};

/// Probabilities over the whole vocabulary after the filters (removed candidates are 0; they sum to 1).
/// Candidates tied with the k-th stay, as in transformers. NaN counts as -inf. Greedy: 1 for the argmax.
/// All zero when no logit is usable (empty, or all NaN or -inf).
std::vector<float> token_probabilities(std::span<const float> logits, const TokenSamplerOptions& options);
/// The next token; -1 when no logit is usable: the caller has a broken model. Greedy does not touch the generator.
int32_t choose_token(std::span<const float> logits, const TokenSamplerOptions& options, CpuGenerator& generator);

}  // namespace danqing
