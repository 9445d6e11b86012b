#include "models/vae/graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "nn/nn.h"

namespace danqing::vae {
namespace {

constexpr float kNormEps = 1e-6f;  // fixed in both classes

/// Layers by the name of their tensors. Pictures are [1, C, height, width].
struct Builder {
  Graph& g;
  const Config& c;
  const Weights& w;

  ggml_tensor* norm(ggml_tensor* x, const std::string& name) const {
    return nn::group_norm(g, x, w.at(name + ".weight"), w.at(name + ".bias"), static_cast<int>(c.norm_num_groups),
                          kNormEps);
  }
  ggml_tensor* conv(ggml_tensor* x, const std::string& name, const nn::Conv2dOptions& o) const {
    return nn::conv2d(g, x, w.at(name + ".weight"), w.at(name + ".bias"), o);
  }
  ggml_tensor* conv3(ggml_tensor* x, const std::string& name) const {
    return conv(x, name, nn::Conv2dOptions::same(3));
  }
  ggml_tensor* conv1(ggml_tensor* x, const std::string& name) const {
    return conv(x, name, nn::Conv2dOptions::same(1));
  }
  ggml_tensor* linear(ggml_tensor* x, const std::string& name) const {
    return nn::linear(g, x, w.at(name + ".weight"), w.at(name + ".bias"));
  }

  ggml_tensor* resnet(ggml_tensor* x, const std::string& name) const {
    ggml_tensor* y = conv3(nn::silu(g, norm(x, name + ".norm1")), name + ".conv1");
    y = conv3(nn::silu(g, norm(y, name + ".norm2")), name + ".conv2");
    if (w.find(name + ".conv_shortcut.weight")) x = conv1(x, name + ".conv_shortcut");
    return nn::add(g, x, y);
  }

  // One head over all pixels.
  ggml_tensor* attention(ggml_tensor* x, const std::string& name, int64_t channels, int64_t h, int64_t width) const {
    const int64_t pixels = h * width;
    ggml_tensor* rows = nn::reshape(g, norm(x, name + ".group_norm"), {1, 1, channels, pixels});
    rows = nn::reshape(g, nn::permute(g, rows, {0, 1, 3, 2}), {1, pixels, channels});
    const auto head = [&](const char* part) {
      return nn::reshape(g, linear(rows, name + part), {1, pixels, 1, channels});
    };
    ggml_tensor *q = head(".to_q"), *k = head(".to_k"), *v = head(".to_v");
    ggml_tensor* y = nn::attention(g, q, k, v, nullptr, 1.0f / std::sqrt(static_cast<float>(channels)));
    y = nn::reshape(g, linear(y, name + ".to_out.0"), {1, 1, pixels, channels});
    y = nn::reshape(g, nn::permute(g, y, {0, 1, 3, 2}), {1, channels, h, width});
    return nn::add(g, x, y);
  }

  ggml_tensor* middle(ggml_tensor* x, const std::string& name, int64_t channels, int64_t h, int64_t width) const {
    x = resnet(x, name + ".resnets.0");
    if (c.mid_block_add_attention) {
      x = attention(x, name + ".attentions.0", channels, h, width);
      g.tap("mid_attention", x, {1, channels, h, width});
    }
    x = resnet(x, name + ".resnets.1");
    g.tap("mid_block", x, {1, channels, h, width});
    return x;
  }
};

constexpr size_t kNodesPerResnet = 32, kNodesAround = 128;  // an estimate is enough: a graph grows

size_t max_nodes(const Config& c) {
  return kNodesAround + kNodesPerResnet * c.block_out_channels.size() * static_cast<size_t>(c.layers_per_block + 1);
}

}  // namespace

std::unique_ptr<Graph> build_decoder(Device& device, const Config& c, const Weights& weights, int64_t h, int64_t w,
                                     bool taps) {
  auto graph = std::make_unique<Graph>(device, max_nodes(c), taps);
  Graph& g = *graph;
  const Builder b{g, c, weights};
  ggml_tensor* x = g.input("latents", DType::f32, {1, c.latent_channels, h, w});
  if (c.use_post_quant_conv) {
    x = b.conv1(x, "post_quant_conv");
    g.tap("post_quant_conv", x, {1, c.latent_channels, h, w});
  }
  x = b.conv3(x, "decoder.conv_in");
  g.tap("conv_in", x, {1, c.decoder_widths().back(), h, w});
  x = b.middle(x, "decoder.mid_block", c.decoder_widths().back(), h, w);
  const size_t blocks = c.decoder_widths().size();
  for (size_t i = 0; i < blocks; ++i) {
    const std::string block = fmt::format("decoder.up_blocks.{}.", i);
    for (int64_t j = 0; j <= c.layers_per_block; ++j) x = b.resnet(x, fmt::format("{}resnets.{}", block, j));
    if (i + 1 < blocks) x = b.conv3(nn::upsample_nearest2(g, x), block + "upsamplers.0.conv");
    const int64_t up = int64_t{1} << std::min(i + 1, blocks - 1);
    g.tap(fmt::format("up.{}", i), x, {1, c.decoder_widths()[blocks - 1 - i], h * up, w * up});
  }
  x = b.norm(x, "decoder.conv_norm_out");
  g.tap("norm_out", x, {1, c.decoder_widths().front(), h * c.scale(), w * c.scale()});
  g.output("picture", b.conv3(nn::silu(g, x), "decoder.conv_out"), {1, c.out_channels, h * c.scale(), w * c.scale()});
  return graph;
}

std::unique_ptr<Graph> build_encoder(Device& device, const Config& c, const Weights& weights, int64_t height,
                                     int64_t width) {
  auto graph = std::make_unique<Graph>(device, max_nodes(c), false);
  Graph& g = *graph;
  const Builder b{g, c, weights};
  nn::Conv2dOptions down;  // the picture gets one more row and column of zeros at the bottom and the right
  down.stride = 2;
  down.pad_right = down.pad_bottom = 1;
  ggml_tensor* x = b.conv3(g.input("picture", DType::f32, {1, c.in_channels, height, width}), "encoder.conv_in");
  for (size_t i = 0; i < c.block_out_channels.size(); ++i) {
    const std::string block = fmt::format("encoder.down_blocks.{}.", i);
    for (int64_t j = 0; j < c.layers_per_block; ++j) x = b.resnet(x, fmt::format("{}resnets.{}", block, j));
    if (i + 1 < c.block_out_channels.size()) x = b.conv(x, block + "downsamplers.0.conv", down);
  }
  x = b.middle(x, "encoder.mid_block", c.block_out_channels.back(), height / c.scale(), width / c.scale());
  x = b.conv3(nn::silu(g, b.norm(x, "encoder.conv_norm_out")), "encoder.conv_out");
  if (c.use_quant_conv) x = b.conv1(x, "quant_conv");
  g.output("moments", x, {1, 2 * c.latent_channels, height / c.scale(), width / c.scale()});
  return graph;
}

}  // namespace danqing::vae
