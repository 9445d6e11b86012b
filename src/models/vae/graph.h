// Decoder and encoder as graphs: of one whole picture, and of one tile between two points of the chain.
#pragma once
#include <memory>

#include "device/graph.h"
#include "device/state.h"
#include "device/weights.h"
#include "models/vae/chain.h"

namespace danqing::vae {

inline constexpr float kNormEps = 1e-6f;  ///< of every norm, fixed in both classes

/// What all graphs of one half need. The members must outlive the graphs.
struct Network {
  Device& device;
  const Weights& weights;
  const Chain& chain;
  int groups;  ///< of every norm
};

/// Input "x" [1, C, h, w], output "y", of the chain's first and last point.
std::unique_ptr<Graph> build_whole(const Network& n, int64_t h_latents, int64_t w_latents, bool taps);

/// A part of the chain without attention.
struct Segment {
  size_t from = 0, to = 0;
  bool statistics = false;  ///< output "statistics" [2, C] (nn::channel_statistics) of the picture at `to`
  bool result = false;      ///< output "y"
  bool kept = false;        ///< output "kept": what waits at `to` for the next `add`
  std::string norm_input(size_t layer) const;  ///< "norm.LAYER" [2, C] (nn::normalise), one for each norm inside
};
/// Inputs "x", "kept" if something is kept at `from`, and one for each norm. Pictures are [1, C, H, W] at the ends of
/// the chain, else [1, H, W, C].
std::unique_ptr<Graph> build_tile(const Network& n, const Segment& s, const Way& rows, const Way& columns);

/// Attention over all pixels, some pixels at a time. Inputs "x" [1, 1, pixels, C] and "norm" [2, C].
/// Keys and values of the pixels "ids" [pixels] (i32) to `state` ("keys" and "values", [all pixels, C]).
std::unique_ptr<Graph> build_keys(const Network& n, size_t layer, int64_t pixels, const State& state);
/// Outputs "y" [1, 1, pixels, C] (the layer's result) and "statistics" [2, C].
std::unique_ptr<Graph> build_queries(const Network& n, size_t layer, int64_t pixels, const State& state);

}  // namespace danqing::vae
