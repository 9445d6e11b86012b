// AutoencoderKLFlux2 / AutoencoderKL: convolutional encoder and decoder (Kingma & Welling 2014; Rombach et al. 2022).
#pragma once
#include <functional>
#include <memory>

#include "base/tensor.h"
#include "checkpoint/checkpoint.h"
#include "device/weights.h"

namespace danqing::vae {

struct Config {
  int64_t in_channels = 3, out_channels = 3, latent_channels = 0, layers_per_block = 0, norm_num_groups = 32;
  std::vector<int64_t> block_out_channels, decoder_block_out_channels;   ///< second empty = like the first
  bool use_quant_conv = true, use_post_quant_conv = true, mid_block_add_attention = true;
  std::vector<int64_t> patch_size{1, 1};    ///< {2, 2} for FLUX.2
  bool has_batch_norm = false;              ///< FLUX.2: latents are normalised by stored statistics
  double scaling_factor = 1, shift_factor = 0;   ///< AutoencoderKL (Z-Image)
  int64_t scale() const { return int64_t{1} << (block_out_channels.size() - 1); }   ///< pixels per latent: 8

  static Result<Config> parse(const Json& json, const std::string& where);
  static Result<Config> infer(const TensorSource& source);
};
enum class Part { decoder, encoder, both };
std::vector<TensorSpec> tensor_table(const Config& c, Part part);
const NameMap& name_map();

class Vae {
 public:
  static Result<std::unique_ptr<Vae>> load(std::shared_ptr<Device> device, const ComponentFiles& files, Part part,
                                           const WeightPolicy& policy, const LoadProgress& progress = {});
  ~Vae();
  /// z [B, latent_channels, h, w] (unpatchified, denormalised) -> [B, 3, 8h, 8w], about -1..1.
  /// taps as in the goldens: "post_quant_conv", "conv_in", "mid_attention", "mid_block", "up.0".., "norm_out".
  Result<Tensor> decode(const Tensor& z, const TapSink& taps = {}, const std::function<bool()>& cancelled = {});
  /// picture [B, 3, H, W] in -1..1, H and W multiples of scale() -> mean and logvar [B, latent_channels, H/8, W/8]; logvar clamped to -30..20.
  struct Posterior { Tensor mean, logvar; };
  Result<Posterior> encode(const Tensor& picture, const std::function<bool()>& cancelled = {});
  /// Exact compute buffer bytes of decode.
  Result<size_t> measure_decode(int64_t batch, int64_t h, int64_t w);
  const Config& config() const;
  uint64_t weight_bytes() const;
  /// Batch-norm statistics [patch channels]: mean and sqrt(var + 1e-5) (the constant, not the config's eps). FLUX.2 only.
  const std::vector<float>& bn_mean() const;
  const std::vector<float>& bn_std() const;
  static double decode_flops(const Config& c, int64_t batch, int64_t h, int64_t w);

 private:
  struct Impl;
  explicit Vae(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// FLUX.2 latents: [B, C*ph*pw, h, w] <-> [B, C, h*ph, w*pw], channel slowest.
Tensor unpatchify(const Tensor& latents, const std::vector<int64_t>& patch_size);
Tensor patchify(const Tensor& latents, const std::vector<int64_t>& patch_size);
/// x*std + mean / (x - mean)/std per channel; `type` rounds each operation as the pipeline's dtype does.
Tensor denormalise(const Tensor& latents, const std::vector<float>& mean, const std::vector<float>& std, bool round_to_bf16 = false);
Tensor normalise(const Tensor& latents, const std::vector<float>& mean, const std::vector<float>& std);

}  // namespace danqing::vae
