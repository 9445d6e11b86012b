// A linear layer whose input may leave the range of f16.
#pragma once
#include "device/graph.h"
#include "nn/nn.h"

namespace danqing {

/// x W^T for an x beyond 65504: gated feed-forward products of trained models reach 344064. Where a product may narrow
/// its factors to f16 (f16 weights on the CPU, any weights on a card), x goes through it scaled down by a power of two,
/// which costs nothing in f32, bf16 or blocks, and in f16 the precision of values below 0.008 only.
inline ggml_tensor* wide_linear(Graph& g, ggml_tensor* x, ggml_tensor* weight) {
  constexpr float kDown = 1.0f / 128;  // values up to 8.3 million
  if (g.device().is_cpu() && weight->type != GGML_TYPE_F16) return nn::linear(g, x, weight);
  return nn::scale(g, nn::linear(g, nn::scale(g, x, kDown), weight), 1 / kDown);
}

}  // namespace danqing
