// ZImageTransformer2DModel: image and caption tokens through a refiner each, then one stream of both; per-layer
// modulation of scales and gates by the time.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/tensor.h"
#include "checkpoint/checkpoint.h"
#include "device/weights.h"

namespace danqing::z_image {

struct Config {
  int64_t dim = 0, n_heads = 0, n_layers = 0, n_refiner_layers = 0, ffn_dim = 0;
  int64_t in_channels = 0, patch_size = 2, cap_feat_dim = 0;
  int64_t time_hidden = 1024;                 ///< width between the two layers of the time embedding
  std::vector<int64_t> axes_dims, axes_lens;  ///< RoPE: elements of a head, and positions, of each of the three axes
  double rope_theta = 256, t_scale = 1000;
  float norm_eps = 1e-5f;
  bool qk_norm = true;
  int64_t head_dim() const { return dim / n_heads; }
  int64_t time_dim() const { return dim < 256 ? dim : 256; }  ///< of the vector that modulates

  /// Errors (bad_input) name the field: missing or wrong type, out of bounds, heads that don't divide dim, axes that
  /// are odd or don't sum to the head size. `where` is the file's name for messages.
  static Result<Config> parse(const Json& json, const std::string& where);
  /// For files without config.json, in the names of diffusers or of the original code, whatever their prefix: sizes
  /// read off the tensors' shapes. What shapes don't tell is assumed as published: patches of 2x2 (unless a name says
  /// otherwise), axes of a quarter and twice three eighths of the head (an Error unless that is a multiple of 16),
  /// 1536, 512 and 512 positions, theta 256, eps 1e-5.
  static Result<Config> infer(const TensorSource& source);
};

/// Tokens of image and caption are padded to a multiple of this with learned vectors that take part like any token.
inline constexpr int64_t kTokenMultiple = 32;
constexpr int64_t padded(int64_t tokens) { return (tokens + kTokenMultiple - 1) / kTokenMultiple * kTokenMultiple; }

/// Every tensor of the model under the names of diffusers, but "x_embedder." and "final_layer." for the part of the one
/// patch size. fused_qkv: query, key and value rows in one matrix "attention.qkv.weight", as the original code has it.
std::vector<TensorSpec> tensor_table(const Config& c, bool fused_qkv);
NameMap name_map(const Config& c);
/// Whether a file stores query, key and value as one matrix.
bool has_fused_qkv(const TensorSource& source);

/// Not for two threads at once.
class Transformer {
 public:
  /// Errors: bad_input (config or tensors), does_not_fit, cancelled.
  static Result<std::unique_ptr<Transformer>> load(std::shared_ptr<Device> device, const ComponentFiles& files,
                                                   const WeightPolicy& policy, const LoadProgress& progress = {});
  ~Transformer();
  /// latents: B tensors [in_channels, h, w], sizes may differ; captions: B tensors [T_i, cap_feat_dim], T_i >= 1,
  /// lengths may differ; times: B values from 0 (noise) to 1 (picture), 1 - sigma. Returns B tensors [in_channels, h,
  /// w] in f32: the velocity towards noise, which a pipeline negates. Pictures of one size run together, captions that
  /// are shorter than the longest are masked: each item's result is that of its own run. Errors: usage (shapes; more
  /// positions than axes_lens), does_not_fit, device_lost, cancelled. The graph of the last shape is kept, so repeated
  /// steps only compute. taps: names of the goldens without "tap."
  /// ("t_embedder", "x_embedder", "cap_embedder", "rope.image.pos_ids", ".cos", ".sin", "rope.caption....",
  /// "noise_refiner.0.attention", ".feed_forward", "noise_refiner.0", "context_refiner....", "layers....",
  /// "final_layer"), shapes as there; RoPE tables are those of the first item.
  Result<std::vector<Tensor>> forward(std::span<const Tensor> latents, std::span<const Tensor> captions,
                                      std::span<const float> times, const TapSink& taps = {},
                                      const std::function<bool()>& cancelled = {});
  /// Exact compute buffer bytes for latents [in_channels, h, w] and these caption lengths, without allocating.
  Result<size_t> measure(int64_t h, int64_t w, std::span<const int64_t> caption_lengths);
  const Config& config() const;
  uint64_t weight_bytes() const;
  const WeightSizes& weight_sizes() const;
  void release();  ///< gives the compute buffer back; the next forward takes it again
  /// Floating point operations of one forward (2 per multiply-add), for the benchmark.
  static double flops(const Config& c, int64_t batch, int64_t h, int64_t w, int64_t caption_tokens);

 private:
  struct Impl;
  explicit Transformer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace danqing::z_image
