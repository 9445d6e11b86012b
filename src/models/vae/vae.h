// AutoencoderKLFlux2 / AutoencoderKL: convolutional encoder and decoder (Kingma & Welling 2014; Rombach et al. 2022).
// Works for any widths, number of blocks and groups; the two kinds differ in how latents are scaled (batch-norm
// statistics or two constants) and in the 1x1 convolutions beside the latents.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/tensor.h"
#include "checkpoint/checkpoint.h"
#include "device/weights.h"

namespace danqing::vae {

struct Config {
  int64_t in_channels = 3, out_channels = 3, latent_channels = 0, layers_per_block = 0, norm_num_groups = 32;
  std::vector<int64_t> block_out_channels, decoder_block_out_channels;  ///< second empty = like the first
  bool use_quant_conv = true, use_post_quant_conv = true, mid_block_add_attention = true;
  std::vector<int64_t> patch_size{1, 1};        ///< {2, 2} for FLUX.2
  bool has_batch_norm = false;                  ///< FLUX.2: latents are normalised by stored statistics
  double scaling_factor = 1, shift_factor = 0;  ///< AutoencoderKL (Z-Image)
  int64_t scale() const { return int64_t{1} << (block_out_channels.size() - 1); }  ///< pixels per latent: 8

  /// Widths of the decoder's blocks, in the encoder's order (lowest resolution last).
  const std::vector<int64_t>& decoder_widths() const {
    return decoder_block_out_channels.empty() ? block_out_channels : decoder_block_out_channels;
  }

  /// config.json of AutoencoderKLFlux2 or AutoencoderKL; `where` names the file in messages. Errors (bad_input) name
  /// the field: missing or wrong type, out of bounds, widths that the groups don't divide, block types that are not
  /// built here.
  static Result<Config> parse(const Json& json, const std::string& where);
  /// For files without config.json, in the names of diffusers or of the original (LDM) code: sizes read off the
  /// tensors. What shapes don't tell is assumed: 32 groups; 16 latent channels without batch norm are FLUX.1's, scaled
  /// by 0.3611 and 0.1159. A file with one half only describes the other half alike.
  static Result<Config> infer(const TensorSource& source);
};
enum class Part { decoder, encoder, both };
/// Every tensor of a part under the names of diffusers (the batch-norm statistics belong to both).
std::vector<TensorSpec> tensor_table(const Config& c, Part part);
/// Foreign names: prefixes, and the original code's names (whose decoder counts its blocks the other way round).
NameMap name_map(const Config& c);

/// How a decode or encode is cut to bound memory; the picture is the same within f32 rounding at any tile: group norms
/// and attention see the whole picture, convolutions the true neighbours of a tile. See docs/memory.md.
struct Tiling {
  /// Side of a tile in latents (decoder: of its input; encoder: of its output); 0: all at once. It holds where pictures
  /// are largest; where they are smaller, larger tiles of about as many values are taken.
  int64_t tile = 0;
  /// Host memory for pictures that are kept between passes over the tiles; what does not fit is computed again. Where
  /// even the least that works does not fit, that much is taken.
  uint64_t host_memory = uint64_t{768} << 20;
};
/// The share that is done, 0 to 1, after every tile.
using TileProgress = std::function<void(double done)>;

/// Not for two threads at once.
class Vae {
 public:
  /// Errors: bad_input (config or tensors), does_not_fit, cancelled.
  static Result<std::unique_ptr<Vae>> load(std::shared_ptr<Device> device, const ComponentFiles& files, Part part,
                                           const WeightPolicy& policy, const LoadProgress& progress = {});
  ~Vae();
  /// z [B, latent_channels, h, w] (unpatchified, denormalised) -> [B, out_channels, h*scale, w*scale], about -1..1.
  /// Items go one after another, so memory does not grow with B. Errors: usage (shape, or loaded without the decoder),
  /// does_not_fit, device_lost, cancelled.
  /// taps as in the goldens: "post_quant_conv", "conv_in", "mid_attention", "mid_block", "up.0".., "norm_out".
  Result<Tensor> decode(const Tensor& z, const TapSink& taps = {}, const std::function<bool()>& cancelled = {});
  /// In tiles. With taps all at once, whatever the tiling says: they are whole pictures.
  Result<Tensor> decode(const Tensor& z, const Tiling& tiling, const TapSink& taps = {},
                        const std::function<bool()>& cancelled = {}, const TileProgress& progress = {});
  /// picture [B, in_channels, H, W] in -1..1, H and W multiples of scale() -> mean and logvar
  /// [B, latent_channels, H/scale, W/scale]; logvar clamped to -30..20.
  struct Posterior {
    Tensor mean, logvar;
  };
  Result<Posterior> encode(const Tensor& picture, const std::function<bool()>& cancelled = {});
  Result<Posterior> encode(const Tensor& picture, const Tiling& tiling, const std::function<bool()>& cancelled = {},
                           const TileProgress& progress = {});
  /// Exact peak bytes on the device beside the weights for latents [batch, latent_channels, h, w] (the batch does not
  /// matter). Allocates nothing there; a kept graph is not counted.
  Result<size_t> measure_decode(int64_t batch, int64_t h, int64_t w, const Tiling& tiling = {});
  Result<size_t> measure_encode(int64_t batch, int64_t h, int64_t w, const Tiling& tiling = {});
  /// Bytes in host memory beside the argument and the result: pictures kept between passes and tiles in hand.
  Result<size_t> host_bytes_decode(int64_t h, int64_t w, const Tiling& tiling);
  Result<size_t> host_bytes_encode(int64_t h, int64_t w, const Tiling& tiling);
  /// Multiply-adds of a tiled decode to those of a whole one: what halos and repeated passes cost.
  Result<double> repeated_work(int64_t h, int64_t w, const Tiling& tiling);
  /// Gives back the memory of the graph that is kept for the next picture of the same size.
  void release();
  const Config& config() const;
  uint64_t weight_bytes() const;
  const WeightSizes& weight_sizes() const;
  /// Batch-norm statistics [patch channels]: mean and sqrt(var + 1e-5) (the pipeline's constant, not the config's eps).
  /// Empty unless has_batch_norm.
  const std::vector<float>& bn_mean() const;
  const std::vector<float>& bn_std() const;
  /// Floating point operations of one decode (2 per multiply-add), for the benchmark.
  static double decode_flops(const Config& c, int64_t batch, int64_t h, int64_t w);

 private:
  struct Impl;
  explicit Vae(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// FLUX.2 latents: [B, C*ph*pw, h, w] <-> [B, C, h*ph, w*pw], channel slowest, then row, then column of the patch.
/// The sizes must divide (callers hold shapes that they made).
Tensor unpatchify(const Tensor& latents, const std::vector<int64_t>& patch_size);
Tensor patchify(const Tensor& latents, const std::vector<int64_t>& patch_size);
/// x*std + mean / (x - mean)/std per channel of [B, C, h, w]; `round_to_bf16` rounds the statistics and each operation
/// as a pipeline in bf16 does.
Tensor denormalise(const Tensor& latents, const std::vector<float>& mean, const std::vector<float>& std,
                   bool round_to_bf16 = false);
Tensor normalise(const Tensor& latents, const std::vector<float>& mean, const std::vector<float>& std);
/// AutoencoderKL: x / scaling_factor + shift_factor, as the decoder takes it; and (x - shift_factor) * scaling_factor.
Tensor unscale(const Tensor& latents, const Config& c, bool round_to_bf16 = false);
Tensor scale(const Tensor& latents, const Config& c);

}  // namespace danqing::vae
