// One forward pass of the transformer as a graph.
#pragma once
#include <memory>

#include "device/graph.h"
#include "device/weights.h"
#include "models/z_image/transformer.h"

namespace danqing::z_image {

/// Everything that the graph's structure depends on.
struct GraphShape {
  int64_t batch = 1, h = 1, w = 1;          ///< h, w in patches
  int64_t caption_tokens = kTokenMultiple;  ///< padded length of the longest item
  bool ragged = false;                      ///< padded lengths differ: positions per item, and a key mask
  bool taps = false;
  bool operator==(const GraphShape&) const = default;
  int64_t image_tokens() const { return padded(h * w); }
  int64_t tokens() const { return image_tokens() + caption_tokens; }
};

/// Inputs. I image tokens, T caption tokens, all padded:
/// "latents" [B, I, p*p*C], "caption" [B, T, cap_feat_dim], "time" [B, 256] (f32);
/// "image_rows" [B*I], "caption_rows" [B*T] (i32): which embedded row stands in each place, B*I or B*T for the pad
/// token; "cos", "sin" [ragged ? B : 1, I + T, 1, head_dim]; "mask" [B, 1, 1, I + T] of 0 and -inf if ragged. Output
/// "patches" [B, I, p*p*C].
std::unique_ptr<Graph> build_graph(Device& device, const Config& c, const Weights& weights, const GraphShape& shape);

}  // namespace danqing::z_image
