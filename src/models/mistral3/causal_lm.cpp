// One sequence with its keys and values kept on the device.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/try.h"
#include "device/state.h"
#include "models/mistral3/graph.h"
#include "models/mistral3/load.h"
#include "models/mistral3/model.h"
#include "nn/nn.h"

namespace danqing::mistral3 {
namespace {

constexpr int64_t kKeyStep = 256;     // attention sees the cache up to the next multiple of this
constexpr int64_t kPromptRows = 512;  // tokens of a prompt in one pass: bounds the compute buffer

int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

std::vector<int32_t> counting(int64_t first, int64_t count) {
  std::vector<int32_t> v(static_cast<size_t>(count));
  std::iota(v.begin(), v.end(), static_cast<int32_t>(first));
  return v;
}

std::string key_name(int64_t layer) { return fmt::format("k.{}", layer); }
std::string value_name(int64_t layer) { return fmt::format("v.{}", layer); }

}  // namespace

struct CausalLM::Impl {
  std::shared_ptr<Device> device;
  Stack stack;
  std::shared_ptr<State> cache;  // per layer [capacity, num_key_value_heads * head_dim], twice
  int64_t capacity = 0, position = 0;
  std::unique_ptr<Runner> runner;  // of the last shape; uses `cache`
  PassShape runner_shape;

  const Config& config() const { return stack.config; }
  int64_t cache_width() const { return config().num_key_value_heads * config().head_dim; }
  std::vector<State::Entry> entries(int64_t positions) const;
  PassShape pass(int64_t position, int64_t ids) const;
  Result<void> reserve(int64_t positions);
  Result<void> copy_cache(const State& from, const State& to, int64_t rows);
  std::unique_ptr<Graph> build(const PassShape& s, const State& cache) const;
  Result<std::vector<float>> step(std::span<const int32_t> ids, const std::function<bool()>& cancelled);
};

std::vector<State::Entry> CausalLM::Impl::entries(int64_t positions) const {
  const DType dtype = stack.exact ? DType::f32 : DType::f16;
  std::vector<State::Entry> all;
  for (int64_t i = 0; i < config().num_hidden_layers; ++i) {
    all.push_back({key_name(i), dtype, {positions, cache_width()}});
    all.push_back({value_name(i), dtype, {positions, cache_width()}});
  }
  return all;
}

PassShape CausalLM::Impl::pass(int64_t from, int64_t ids) const {
  return {1, ids, round_up(from + ids, kKeyStep), ids, query_scale(config(), from + ids - 1) != 1.0f};
}

/// Room for at least `positions`, keeping what is there.
Result<void> CausalLM::Impl::reserve(int64_t positions) {
  if (positions <= capacity) return {};
  const int64_t most = round_up(config().max_position_embeddings, kKeyStep);
  const int64_t grown = std::min(std::max(round_up(positions, kKeyStep), position > 0 ? 2 * capacity : 0), most);
  runner.reset();
  if (position == 0) cache.reset(), capacity = 0;  // nothing to keep: give the memory back first
  DQ_TRY(std::shared_ptr<State> larger, State::create(device, entries(grown), "key/value cache"));
  if (position > 0) DQ_CHECK(copy_cache(*cache, *larger, position));
  cache = std::move(larger);
  capacity = grown;
  return {};
}

Result<void> CausalLM::Impl::copy_cache(const State& from, const State& to, int64_t rows) {
  auto graph = std::make_unique<Graph>(*device, expected_nodes(config().num_hidden_layers));
  Graph& g = *graph;
  ggml_tensor* ids = g.input("rows", DType::i32, {rows});
  for (int64_t i = 0; i < config().num_hidden_layers; ++i)
    for (const std::string& name : {key_name(i), value_name(i)})  // through f32, which is exact for both cache dtypes
      nn::store_rows(g, to.at(name), nn::embedding(g, ids, from.at(name)), ids);
  Runner once(std::move(graph));
  DQ_CHECK(once.set("rows", counting(0, rows)));
  return once.run();
}

std::unique_ptr<Graph> CausalLM::Impl::build(const PassShape& s, const State& kept) const {
  const Config& c = config();
  const Weights& w = *stack.weights;
  auto graph = std::make_unique<Graph>(*device, expected_nodes(c.num_hidden_layers));
  Graph& g = *graph;
  const PassInputs in = make_inputs(g, c, s);
  ggml_tensor* rows = g.input("rows", DType::i32, {s.length});  // where in the cache the new keys and values go
  auto append = [&](ggml_tensor* table, ggml_tensor* now) {
    table = nn::store_rows(g, table, nn::reshape(g, now, {s.length, cache_width()}), rows);
    return nn::reshape(g, nn::narrow(g, table, 2, 0, s.keys), {1, s.keys, c.num_key_value_heads, c.head_dim});
  };
  const KeyValueStore store = [&](int64_t layer, const KeyValues& now) {
    return KeyValues{append(kept.at(key_name(layer)), now.k), append(kept.at(value_name(layer)), now.v)};
  };
  ggml_tensor* x = embed(g, c, w, in);
  for (int64_t i = 0; i < c.num_hidden_layers; ++i) x = decoder_layer(g, c, w, i, x, in, store);
  x = nn::rms_norm(g, nn::narrow(g, x, 2, s.length - 1, 1), w.at("norm.weight"), c.rms_norm_eps);
  g.output("logits", nn::linear(g, x, w.at(c.tie_word_embeddings ? "embed_tokens.weight" : "lm_head.weight")));
  return graph;
}

/// One pass over at most kPromptRows ids; the cache has room.
Result<std::vector<float>> CausalLM::Impl::step(std::span<const int32_t> ids, const std::function<bool()>& cancelled) {
  const int64_t n = static_cast<int64_t>(ids.size());
  const PassShape shape = pass(position, n);
  if (!runner || !(shape == runner_shape)) {
    runner.reset();  // its compute buffer goes before the next one comes
    runner = std::make_unique<Runner>(build(shape, *cache));
    runner_shape = shape;
  }
  DQ_CHECK(runner->set("ids", ids));
  DQ_CHECK(runner->set("rows", counting(position, n)));
  DQ_CHECK(set_positions(*runner, config(), stack.rope, shape, position));
  DQ_CHECK(runner->run(cancelled));
  DQ_TRY(Tensor logits, runner->read("logits"));
  position += n;
  return std::move(logits.data);
}

CausalLM::CausalLM(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CausalLM::~CausalLM() = default;

Result<std::unique_ptr<CausalLM>> CausalLM::load(std::shared_ptr<Device> device, const ComponentFiles& files,
                                                 const WeightPolicy& policy, const LoadProgress& progress) {
  auto impl = std::make_unique<Impl>();
  DQ_TRY(const Architecture architecture, architecture_of(files));
  DQ_TRY(impl->stack, load_stack(device, files, architecture, Part::language, policy, progress));
  impl->device = std::move(device);
  return std::unique_ptr<CausalLM>(new CausalLM(std::move(impl)));
}

Result<void> CausalLM::reset(int64_t capacity) {
  impl_->position = 0;
  return impl_->reserve(std::min(capacity, impl_->config().max_position_embeddings));
}

Result<std::vector<float>> CausalLM::append(std::span<const int32_t> ids, const std::function<bool()>& cancelled) {
  const int64_t start = impl_->position, room = config().max_position_embeddings - start;
  DQ_CHECK(check_ids(config(), ids, "language model"));
  if (static_cast<int64_t>(ids.size()) > room)
    return usage_error("[language model] expected at most {} more tokens (max_position_embeddings {}), got {}", room,
                       config().max_position_embeddings, ids.size());
  DQ_CHECK(impl_->reserve(start + static_cast<int64_t>(ids.size())));
  Result<std::vector<float>> logits = std::vector<float>();
  while (!ids.empty()) {
    const auto part = ids.first(std::min(ids.size(), static_cast<size_t>(kPromptRows)));
    ids = ids.subspan(part.size());
    logits = cancelled && cancelled() ? fail(ErrorCode::cancelled, "[language model] stopped")
                                      : impl_->step(part, cancelled);
    if (!logits) {
      impl_->position = start;  // what was written past it stays masked until it is overwritten
      break;
    }
  }
  return logits;
}

Result<size_t> CausalLM::measure(int64_t prompt, int64_t capacity) const {
  const Impl& m = *impl_;
  if (prompt < 1 || capacity < prompt || capacity > config().max_position_embeddings)
    return usage_error("[language model] expected a prompt within a capacity of at most {} tokens, got {} in {}",
                       config().max_position_embeddings, prompt, capacity);
  DQ_TRY(const std::shared_ptr<State> cache, State::describe(m.device, m.entries(round_up(capacity, kKeyStep))));
  size_t passes = 0;
  const auto add = [&](int64_t position, int64_t ids) {
    passes = std::max(passes, Runner(m.build(m.pass(position, ids), *cache)).measure());
  };
  for (int64_t at = 0; at < prompt; at += kPromptRows) add(at, std::min(kPromptRows, prompt - at));
  if (capacity > prompt) add(capacity - 1, 1);
  return cache->placed_bytes() + passes;
}

int64_t CausalLM::position() const { return impl_->position; }
const Config& CausalLM::config() const { return impl_->stack.config; }
uint64_t CausalLM::weight_bytes() const { return impl_->stack.weights->bytes(); }
const WeightSizes& CausalLM::weight_sizes() const { return impl_->stack.weights->sizes(); }
void CausalLM::release() {
  impl_->runner.reset();
  impl_->cache.reset();
  impl_->capacity = impl_->position = 0;
}

uint64_t CausalLM::cache_bytes() const { return impl_->cache ? impl_->cache->bytes() : 0; }

}  // namespace danqing::mistral3
