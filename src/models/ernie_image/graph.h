// One forward pass of the transformer as a graph.
#pragma once
#include <memory>

#include "device/graph.h"
#include "device/weights.h"
#include "models/ernie_image/transformer.h"

namespace danqing::ernie_image {

/// Everything that the graph's structure depends on.
struct GraphShape {
  int64_t batch = 1, h = 1, w = 1;  ///< h, w in patches
  int64_t text_tokens = 1;          ///< of the longest item
  bool ragged = false;              ///< text lengths differ: positions per item, and a key mask
  bool taps = false;
  bool operator==(const GraphShape&) const = default;
  int64_t tokens() const { return h * w + text_tokens; }
};

/// Inputs (f32): "latents" [B, h*w, in*p*p], "text" [B, T, text_in_dim], "time" [B, hidden],
/// "cos" and "sin" [ragged ? B : 1, h*w + T, 1, head_dim], "mask" [B, 1, h*w + T, h*w + T]
/// of 0 and -inf if ragged.
/// Output "patches" [B, h*w, p*p*out].
std::unique_ptr<Graph> build_graph(Device& device, const Config& c, const Weights& weights, const GraphShape& shape);

}  // namespace danqing::ernie_image
