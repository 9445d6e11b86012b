// Choosing the next token, in the order transformers' generate() works: temperature, top-k, top-p, then one draw.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "sampling/random.h"

namespace danqing {

struct TokenSamplerOptions {
  float temperature = 0.6f;   ///< 0 = greedy (argmax, lowest id on ties)
  int top_k = 50;             ///< 0 = off
  float top_p = 0.95f;        ///< 1 = off
};

/// Probabilities over the whole vocabulary after the filters (removed candidates are 0).
std::vector<float> token_probabilities(std::span<const float> logits, const TokenSamplerOptions& options);
/// The next token. Greedy does not touch the generator.
int32_t choose_token(std::span<const float> logits, const TokenSamplerOptions& options, CpuGenerator& generator);

}  // namespace danqing
