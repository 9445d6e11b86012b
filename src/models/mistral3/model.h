// The two uses of a Ministral text stack: prompt features for the denoiser, and the prompt enhancer's language model.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/tensor.h"
#include "checkpoint/checkpoint.h"
#include "device/graph.h"
#include "device/weights.h"
#include "models/mistral3/config.h"

namespace danqing::mistral3 {

/// hidden_states[-2] of a Mistral3Model: runs num_hidden_layers - 1 layers, no final norm; the last layer and the head
/// are neither loaded nor run. Thread rule: encoding does not change the object, but its Device computes for one thread
/// at a time.
class TextEncoder {
 public:
  /// Files with or without config.json (see Config::infer). Errors: bad_input, does_not_fit, cancelled (by `progress`).
  static Result<std::unique_ptr<TextEncoder>> load(std::shared_ptr<Device> device, const ComponentFiles& files,
                                                   const WeightPolicy& policy, const LoadProgress& progress = {});
  /// All hidden states of one prompt for verification: also loads the last layer and the final norm. encode() returns
  /// the same features and additionally taps "all.N", the last state after the final norm.
  static Result<std::unique_ptr<TextEncoder>> load_all(std::shared_ptr<Device> device, const ComponentFiles& files,
                                                       const WeightPolicy& policy);
  /// Either of the two for another architecture of this stack.
  static Result<std::unique_ptr<TextEncoder>> load_as(std::shared_ptr<Device> device, const ComponentFiles& files,
                                                      const Architecture& architecture, bool all_layers,
                                                      const WeightPolicy& policy, const LoadProgress& progress);
  /// One prompt: ids [T] (1 <= T <= max_position_embeddings) -> [T, hidden_size]. Ids outside the vocabulary are a
  /// usage Error. taps: "all.0" (embeddings) ... "all.N-1" (the features), each [T, hidden_size].
  Result<Tensor> encode(std::span<const int32_t> ids, const TapSink& taps = {}) const;
  /// Several prompts at once, padded on the right; each result is cropped to its own length. The causal mask hides the
  /// padding from every real token, since it comes after all of them.
  Result<std::vector<Tensor>> encode_batch(const std::vector<std::vector<int32_t>>& ids) const;
  /// Exact compute buffer bytes for `batch` prompts padded to `length` tokens, without allocating. Error usage.
  Result<size_t> measure(int64_t batch, int64_t length) const;
  const Config& config() const { return config_; }
  uint64_t weight_bytes() const { return weights_->bytes(); }
  const WeightSizes& weight_sizes() const { return weights_->sizes(); }
  void release() {}  ///< no compute buffer is kept between calls

 private:
  TextEncoder() = default;
  std::unique_ptr<Graph> build(int64_t batch, int64_t length, bool taps) const;
  Result<Tensor> run(std::span<const int32_t> padded, int64_t batch, int64_t length, const TapSink& taps) const;
  Config config_;
  RopeTable rope_;
  std::shared_ptr<Device> device_;
  std::shared_ptr<const Weights> weights_;
  bool all_layers_ = false;
};

/// A causal language model with a KV cache. One sequence at a time; not for two threads at once.
/// The cache is f32 where the matrices are, else f16; attention looks at it in steps of 256 positions, so that the
/// graph of a one-token step is built once per step of 256 and not once per token.
class CausalLM {
 public:
  /// Files with or without config.json (see Config::infer). Errors: bad_input, does_not_fit, cancelled (by `progress`).
  static Result<std::unique_ptr<CausalLM>> load(std::shared_ptr<Device> device, const ComponentFiles& files,
                                                const WeightPolicy& policy, const LoadProgress& progress = {});
  ~CausalLM();
  /// Forgets the sequence; reserves room for `capacity` positions (grows by itself when exceeded, never past
  /// max_position_embeddings). Error does_not_fit.
  Result<void> reset(int64_t capacity);
  /// Appends ids (a prompt, in passes of bounded size, or one token) and returns the logits [vocab_size] after the last
  /// of them. Errors: usage (no ids, ids outside the vocabulary, more than max_position_embeddings in all),
  /// does_not_fit, cancelled, device_lost. After an error the sequence is what it was before the call.
  Result<std::vector<float>> append(std::span<const int32_t> ids, const std::function<bool()>& cancelled = {});
  /// The most that the device has allocated besides the weights from reset(capacity) through append() of a prompt of
  /// `prompt` tokens to single tokens up to `capacity` positions: cache and compute buffers, exact, without allocating.
  /// Error usage.
  Result<size_t> measure(int64_t prompt, int64_t capacity) const;
  int64_t position() const;
  const Config& config() const;
  uint64_t weight_bytes() const;
  const WeightSizes& weight_sizes() const;
  uint64_t cache_bytes() const;  ///< on the device now
  void release();                ///< forgets the sequence and gives cache and compute buffer back

 private:
  struct Impl;
  explicit CausalLM(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace danqing::mistral3
