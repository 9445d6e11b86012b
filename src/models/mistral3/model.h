// The two uses of a Ministral text stack: prompt features for the denoiser, and the prompt enhancer's language model.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/tensor.h"
#include "checkpoint/checkpoint.h"
#include "device/weights.h"
#include "models/mistral3/config.h"

namespace danqing::mistral3 {

/// hidden_states[-2] of a Mistral3Model: runs num_hidden_layers - 1 layers, no final norm.
class TextEncoder {
 public:
  static Result<std::unique_ptr<TextEncoder>> load(std::shared_ptr<Device> device, const ComponentFiles& files,
                                                   const WeightPolicy& policy, const LoadProgress& progress = {});
  /// One prompt: ids [T] (T >= 1) -> [T, hidden_size]. Ids outside the vocabulary are an Error.
  /// taps: "all.0" (embeddings) ... "all.N-1".
  Result<Tensor> encode(std::span<const int32_t> ids, const TapSink& taps = {}) const;
  /// Several prompts at once, padded on the right and masked; each result is cropped to its own length.
  Result<std::vector<Tensor>> encode_batch(const std::vector<std::vector<int32_t>>& ids) const;
  /// All hidden states of one prompt, hidden_states[0..num_hidden_layers], the last after the final norm (for verification;
  /// needs a TextEncoder loaded with load_all).
  static Result<std::unique_ptr<TextEncoder>> load_all(std::shared_ptr<Device> device, const ComponentFiles& files,
                                                       const WeightPolicy& policy);
  const Config& config() const { return config_; }
  uint64_t weight_bytes() const { return weights_->bytes(); }

 private:
  TextEncoder() = default;
  Config config_;
  std::shared_ptr<Device> device_;
  std::shared_ptr<const Weights> weights_;
  bool all_layers_ = false;
};

/// A causal language model with a KV cache. One sequence at a time; not for two threads at once.
class CausalLM {
 public:
  static Result<std::unique_ptr<CausalLM>> load(std::shared_ptr<Device> device, const ComponentFiles& files,
                                                const WeightPolicy& policy, const LoadProgress& progress = {});
  ~CausalLM();
  /// Forgets the sequence; reserves room for `capacity` positions (grows by itself when exceeded).
  Result<void> reset(int64_t capacity);
  /// Appends ids (a prompt in one pass, or one token) and returns the logits [vocab_size] after the last of them.
  Result<std::vector<float>> append(std::span<const int32_t> ids, const std::function<bool()>& cancelled = {});
  int64_t position() const;
  const Config& config() const;
  uint64_t weight_bytes() const;

 private:
  struct Impl;
  explicit CausalLM(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace danqing::mistral3
