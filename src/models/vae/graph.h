// Decoder and encoder of one picture as graphs.
#pragma once
#include <memory>

#include "device/graph.h"
#include "device/weights.h"
#include "models/vae/vae.h"

namespace danqing::vae {

/// Input "latents" [1, latent_channels, h, w], output "picture" [1, out_channels, h*scale, w*scale].
std::unique_ptr<Graph> build_decoder(Device& device, const Config& c, const Weights& weights, int64_t h, int64_t w,
                                     bool taps);
/// Input "picture" [1, in_channels, height, width], output "moments" [1, 2*latent_channels, height/scale, width/scale]:
/// means, then log-variances (not clamped).
std::unique_ptr<Graph> build_encoder(Device& device, const Config& c, const Weights& weights, int64_t height,
                                     int64_t width);

}  // namespace danqing::vae
