// ErnieImageTransformer2DModel: single-stream DiT over image tokens followed by text tokens, shared adaLN modulation.
#pragma once
#include <functional>
#include <memory>
#include <span>

#include "base/tensor.h"
#include "checkpoint/checkpoint.h"
#include "device/weights.h"

namespace danqing::ernie_image {

struct Config {
  int64_t hidden_size = 0, num_attention_heads = 0, num_layers = 0, ffn_hidden_size = 0;
  int64_t in_channels = 0, out_channels = 0, patch_size = 1, text_in_dim = 0;
  std::vector<int64_t> rope_axes_dim;
  double rope_theta = 256;
  float eps = 1e-6f;
  bool qk_layernorm = true;
  int64_t head_dim() const { return hidden_size / num_attention_heads; }
  bool has_text_proj() const { return text_in_dim != hidden_size; }  ///< equal sizes: the file has no projection

  /// Errors (bad_input) name the field: missing or wrong type, out of bounds, heads that don't divide hidden_size,
  /// axes that are odd or don't sum to the head size. `where` is the file's name for messages.
  static Result<Config> parse(const Json& json, const std::string& where);
  /// For files without config.json: sizes read off the tensors' shapes. What shapes don't tell is assumed: the head
  /// size is that of norm_q (128 if there is none), its axes are a quarter and twice three eighths of it (32, 48, 48 of
  /// 128; an Error unless it is a multiple of 16), theta 256, eps 1e-6. No text_proj means text_in_dim = hidden_size.
  static Result<Config> infer(const TensorSource& source);
};
/// Every tensor of the model under the names of diffusers.
std::vector<TensorSpec> tensor_table(const Config& c);
const NameMap& name_map();

/// Not for two threads at once.
class Transformer {
 public:
  /// Errors: bad_input (config or tensors), does_not_fit, cancelled.
  static Result<std::unique_ptr<Transformer>> load(std::shared_ptr<Device> device, const ComponentFiles& files,
                                                   const WeightPolicy& policy, const LoadProgress& progress = {});
  ~Transformer();
  /// latents [B, in_channels, h, w]; text: B tensors [T_i, text_in_dim], T_i >= 1, lengths may differ;
  /// timesteps: B values, 1000*sigma (a caller that reproduces a bf16 run rounds them). Returns [B, out_channels, h, w]
  /// in f32. Lengths that differ are padded and masked: each item's result is that of its own run.
  /// Errors: usage (shapes), does_not_fit, device_lost, cancelled.
  /// The graph of the last shape is kept, so repeated steps only compute. taps: names of the goldens without "tap."
  /// ("x_embedder", "text_proj", "rope_angles", "time_embedding", "adaln", "block.0.attention", "block.0.mlp",
  /// "block.0", "final_norm", "final_linear"), shapes as there.
  Result<Tensor> forward(const Tensor& latents, std::span<const Tensor> text, std::span<const float> timesteps,
                         const TapSink& taps = {}, const std::function<bool()>& cancelled = {});
  /// Exact compute buffer bytes for latents [B, in_channels, h, w] and B text lengths, without allocating.
  Result<size_t> measure(int64_t batch, int64_t h, int64_t w, std::span<const int64_t> text_lengths);
  const Config& config() const;
  uint64_t weight_bytes() const;
  const WeightSizes& weight_sizes() const;
  void release();  ///< gives the compute buffer back; the next forward takes it again
  /// Floating point operations of one forward (2 per multiply-add), for the benchmark.
  static double flops(const Config& c, int64_t batch, int64_t h, int64_t w, int64_t text_tokens);

 private:
  struct Impl;
  explicit Transformer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace danqing::ernie_image
