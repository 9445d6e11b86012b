// Prompt features. No graph is kept between calls: prompts differ in length, building costs microseconds per layer, and
// the compute buffer is memory that the denoiser needs next.
#include <fmt/format.h>

#include <algorithm>

#include "base/try.h"
#include "models/mistral3/graph.h"
#include "models/mistral3/load.h"
#include "models/mistral3/model.h"
#include "nn/nn.h"

namespace danqing::mistral3 {

Result<std::unique_ptr<TextEncoder>> TextEncoder::load_as(std::shared_ptr<Device> device, const ComponentFiles& files,
                                                          const Architecture& architecture, bool all_layers,
                                                          const WeightPolicy& policy, const LoadProgress& progress) {
  DQ_TRY(Stack stack,
         load_stack(device, files, architecture, all_layers ? Part::all_states : Part::features, policy, progress));
  std::unique_ptr<TextEncoder> e(new TextEncoder);
  e->config_ = stack.config;
  e->rope_ = std::move(stack.rope);
  e->weights_ = std::move(stack.weights);
  e->device_ = std::move(device);
  e->all_layers_ = all_layers;
  return e;
}

Result<std::unique_ptr<TextEncoder>> TextEncoder::load(std::shared_ptr<Device> device, const ComponentFiles& files,
                                                       const WeightPolicy& policy, const LoadProgress& progress) {
  DQ_TRY(const Architecture architecture, architecture_of(files));
  return load_as(std::move(device), files, architecture, false, policy, progress);
}

Result<std::unique_ptr<TextEncoder>> TextEncoder::load_all(std::shared_ptr<Device> device, const ComponentFiles& files,
                                                           const WeightPolicy& policy) {
  DQ_TRY(const Architecture architecture, architecture_of(files));
  return load_as(std::move(device), files, architecture, true, policy, {});
}

std::unique_ptr<Graph> TextEncoder::build(int64_t batch, int64_t length, bool taps) const {
  const PassShape shape = uncached_pass(config_, batch, length);
  const int64_t layers = config_.num_hidden_layers - 1;
  auto graph = std::make_unique<Graph>(*device_, expected_nodes(layers + 1), taps);
  Graph& g = *graph;
  const PassInputs in = make_inputs(g, config_, shape);
  ggml_tensor* x = embed(g, config_, *weights_, in);
  const Shape one{length, config_.hidden_size}, all{batch, length, config_.hidden_size};
  g.tap("all.0", x, one);
  for (int64_t i = 0; i < layers; ++i) {
    x = decoder_layer(g, config_, *weights_, i, x, in);
    g.tap(fmt::format("all.{}", i + 1), x, one);
  }
  g.output("features", x, all);
  if (all_layers_ && taps) {
    x = decoder_layer(g, config_, *weights_, layers, x, in);
    g.tap(fmt::format("all.{}", layers + 1), nn::rms_norm(g, x, weights_->at("norm.weight"), config_.rms_norm_eps),
          one);
  }
  return graph;
}

Result<Tensor> TextEncoder::run(std::span<const int32_t> padded, int64_t batch, int64_t length,
                                const TapSink& taps) const {
  Runner runner(build(batch, length, static_cast<bool>(taps)));
  DQ_CHECK(runner.set("ids", padded));
  DQ_CHECK(set_positions(runner, config_, rope_, uncached_pass(config_, batch, length), 0));
  DQ_CHECK(runner.run());
  if (taps) DQ_CHECK(runner.send_taps(taps));
  return runner.read("features");
}

Result<size_t> TextEncoder::measure(int64_t batch, int64_t length) const {
  if (length < 1 || length > config_.max_position_embeddings || batch < 1 || batch > kMaxPositions / length)
    return usage_error("[text encoder] expected prompts of 1 to {} tokens, got {} of {}",
                       config_.max_position_embeddings, batch, length);
  return Runner(build(batch, length, false)).measure();
}

Result<Tensor> TextEncoder::encode(std::span<const int32_t> ids, const TapSink& taps) const {
  DQ_CHECK(check_ids(config_, ids, "text encoder"));
  DQ_TRY(const Tensor all, run(ids, 1, static_cast<int64_t>(ids.size()), taps));
  return item(all, 0);
}

Result<std::vector<Tensor>> TextEncoder::encode_batch(const std::vector<std::vector<int32_t>>& ids) const {
  size_t longest = 0;
  for (const auto& prompt : ids) {
    DQ_CHECK(check_ids(config_, prompt, "text encoder"));
    longest = std::max(longest, prompt.size());
  }
  std::vector<Tensor> out;
  if (ids.empty()) return out;
  std::vector<int32_t> padded(ids.size() * longest, 0);  // any id will do: no real token sees it
  for (size_t i = 0; i < ids.size(); ++i)
    std::copy(ids[i].begin(), ids[i].end(), padded.begin() + static_cast<std::ptrdiff_t>(i * longest));
  DQ_TRY(const Tensor all, run(padded, static_cast<int64_t>(ids.size()), static_cast<int64_t>(longest), {}));
  for (size_t i = 0; i < ids.size(); ++i)
    out.push_back(slice(item(all, static_cast<int64_t>(i)), 0, static_cast<int64_t>(ids[i].size())));
  return out;
}

}  // namespace danqing::mistral3
