#include "models/vae/vae.h"

namespace danqing::vae {

// Convolutions and the attention's products; norms and activations are nothing beside them.
double Vae::decode_flops(const Config& c, int64_t batch, int64_t h, int64_t w) {
  double pixels = static_cast<double>(h) * static_cast<double>(w), sum = 0;
  const auto conv = [&](int64_t in, int64_t out, int64_t kernel) {
    sum += pixels * static_cast<double>(in) * static_cast<double>(out) * static_cast<double>(kernel * kernel);
  };
  const auto resnet = [&](int64_t in, int64_t out) {
    conv(in, out, 3);
    conv(out, out, 3);
    if (in != out) conv(in, out, 1);
  };
  const std::vector<int64_t>& widths = c.decoder_widths();
  int64_t in = widths.back();
  if (c.use_post_quant_conv) conv(c.latent_channels, c.latent_channels, 1);
  conv(c.latent_channels, in, 3);
  resnet(in, in), resnet(in, in);
  if (c.mid_block_add_attention) {
    for (int i = 0; i < 4; ++i) conv(in, in, 1);
    sum += 2 * pixels * pixels * static_cast<double>(in);
  }
  for (size_t i = 0; i < widths.size(); ++i) {
    const int64_t out = widths[widths.size() - 1 - i];
    for (int64_t j = 0; j <= c.layers_per_block; ++j, in = out) resnet(in, out);
    if (i + 1 == widths.size()) continue;
    pixels *= 4;
    conv(out, out, 3);
  }
  conv(in, c.out_channels, 3);
  return 2 * static_cast<double>(batch) * sum;
}

}  // namespace danqing::vae
