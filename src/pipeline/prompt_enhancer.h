// The prompt enhancer: a language model that rewrites a short prompt into a full description.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "danqing/engine.h"
#include "models/mistral3/model.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace danqing {

/// Ranges of temperature, top_p, top_k and max_new_tokens; a usage Error names the field.
Result<void> check_enhance_options(const EnhanceOptions& options);

class PromptEnhancer {
 public:
  static Result<std::unique_ptr<PromptEnhancer>> load(std::shared_ptr<Device> device, const ComponentFiles& files,
                                                      const std::filesystem::path& tokenizer,
                                                      const WeightPolicy& policy, const LoadProgress& progress);
  /// Samples until an end token or options.max_new_tokens. The result is stripped and may be empty.
  /// options.width and height must be set. `on_text(done, cap, text)`: whole characters as they appear.
  Result<EnhanceResult> run(std::string_view prompt, const EnhanceOptions& options,
                            const std::function<bool()>& cancelled,
                            const std::function<void(int, int, const std::string&)>& on_text);
  /// The same, giving ids (for verification): the new tokens without the end token's text processing.
  Result<std::vector<int32_t>> generate(const std::vector<int32_t>& prompt_ids, const EnhanceOptions& options,
                                        const std::function<bool()>& cancelled,
                                        const std::function<void(int32_t id)>& on_token);
  Result<std::vector<int32_t>> prompt_ids(std::string_view prompt, int width, int height) const;
  /// Exact bytes on the device beyond the weights, at most, of run() with a prompt of so many ids.
  Result<size_t> measure(int64_t prompt_ids, int64_t max_new_tokens) const {
    return model_->measure(prompt_ids,
                           std::min(prompt_ids + cap(max_new_tokens), model_->config().max_position_embeddings));
  }
  const WeightSizes& weight_sizes() const { return model_->weight_sizes(); }
  void release() { model_->release(); }
  mistral3::CausalLM& model() { return *model_; }
  const std::vector<int32_t>& stop_ids() const { return stop_ids_; }

 private:
  PromptEnhancer() = default;
  int64_t cap(int64_t max_new_tokens) const;
  std::unique_ptr<mistral3::CausalLM> model_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::unique_ptr<ChatTemplate> template_;
  std::vector<int32_t> stop_ids_;
  std::string pending_;  // bytes of a character that has not ended yet
};

}  // namespace danqing
