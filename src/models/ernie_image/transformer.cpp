#include "models/ernie_image/transformer.h"

#include <algorithm>
#include <cmath>

#include "base/try.h"
#include "models/ernie_image/graph.h"
#include "models/ernie_image/positions.h"
#include "models/kept_runner.h"

namespace danqing::ernie_image {
namespace {

constexpr int64_t kMaxTokens = int64_t{1} << 22;  // of a whole batch; keeps every size of a graph far inside 63 bits

Result<GraphShape> graph_shape(const Config& c, int64_t batch, int64_t h, int64_t w, std::span<const int64_t> lengths,
                               bool taps) {
  if (batch < 1 || batch > kMaxTokens || lengths.size() != static_cast<size_t>(batch))
    return usage_error("[transformer] expected one text per item of the batch, got {} for {}", lengths.size(), batch);
  const int64_t p = c.patch_size;
  if (h < p || w < p || h > kMaxTokens || w > kMaxTokens || h % p != 0 || w % p != 0)
    return usage_error("[transformer] expected latent height and width in multiples of {}, got {}x{}", p, h, w);
  GraphShape s{batch, h / p, w / p, 1, false, taps};
  for (int64_t n : lengths) {
    if (n < 1 || n > kMaxTokens)
      return usage_error("[transformer] expected 1 to {} text tokens, got {}", kMaxTokens, n);
    s.ragged |= n != lengths[0];
    s.text_tokens = std::max(s.text_tokens, n);
  }
  if (s.tokens() > kMaxTokens / batch)
    return usage_error("[transformer] expected at most {} tokens in a batch, got {} x {}", kMaxTokens, batch,
                       s.tokens());
  return s;
}

}  // namespace

struct Transformer::Impl : KeptRunner<GraphShape> {
  std::shared_ptr<Device> device;
  Config config;
  std::shared_ptr<const Weights> weights;

  ~Impl() { runner.reset(); }  // a base is destroyed last, and its buffers need the device

  Result<void> prepare(const GraphShape& wanted) {
    return keep(wanted, [&] { return build_graph(*device, config, *weights, wanted); });
  }

  // Positions and mask; they stay in the graph's inputs until the text lengths change.
  Result<void> set_tables(const std::vector<int64_t>& wanted) {
    if (lengths == wanted) return {};
    lengths.clear();
    std::vector<float> cos, sin, mask;
    for (size_t b = 0; b < (shape.ragged ? wanted.size() : 1); ++b) {
      for (float a : rope_angles(config, shape.h, shape.w, wanted[b], shape.text_tokens)) {
        cos.push_back(std::cos(a));
        sin.push_back(std::sin(a));
      }
      if (!shape.ragged) continue;
      std::vector<float> keys(static_cast<size_t>(shape.tokens()), 0.0f);
      std::fill(keys.begin() + shape.h * shape.w + wanted[b], keys.end(), -INFINITY);
      mask.insert(mask.end(), keys.begin(), keys.end());  // the same for every query
    }
    DQ_CHECK(runner->set("cos", cos));
    DQ_CHECK(runner->set("sin", sin));
    if (shape.ragged) DQ_CHECK(runner->set("mask", mask));
    lengths = wanted;
    return {};
  }

  std::vector<float> padded(std::span<const Tensor> text) const {
    std::vector<float> rows(static_cast<size_t>(shape.batch * shape.text_tokens * config.text_in_dim), 0.0f);
    for (size_t b = 0; b < text.size(); ++b) {
      std::copy(text[b].data.begin(), text[b].data.end(),
                rows.begin() + static_cast<int64_t>(b) * shape.text_tokens * config.text_in_dim);
    }
    return rows;
  }

  Tensor angles() const {
    Tensor t(Shape{0, shape.tokens(), 1, config.head_dim()});
    for (int64_t n : lengths) {
      const std::vector<float> a = rope_angles(config, shape.h, shape.w, n, shape.text_tokens);
      t.data.insert(t.data.end(), a.begin(), a.end());
      ++t.shape[0];
    }
    return t;
  }
};

Transformer::Transformer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Transformer::~Transformer() = default;
const Config& Transformer::config() const { return impl_->config; }
uint64_t Transformer::weight_bytes() const { return impl_->weights->bytes(); }
const WeightSizes& Transformer::weight_sizes() const { return impl_->weights->sizes(); }
void Transformer::release() { impl_->release(); }

Result<std::unique_ptr<Transformer>> Transformer::load(std::shared_ptr<Device> device, const ComponentFiles& files,
                                                       const WeightPolicy& policy, const LoadProgress& progress) {
  auto impl = std::make_unique<Impl>();
  DQ_TRY(impl->config, files.config ? Config::parse(*files.config, (files.path / "config.json").string())
                                    : Config::infer(*files.source));
  DQ_TRY(BoundTensors bound,
         danqing::bind(files.source, tensor_table(impl->config), name_map(), "ERNIE-Image transformer"));
  DQ_CHECK(apply_adapters(bound, files.adapters, name_map()));
  DQ_TRY(impl->weights, Weights::load(device, bound, policy, progress));
  impl->device = std::move(device);
  return std::unique_ptr<Transformer>(new Transformer(std::move(impl)));
}

Result<Tensor> Transformer::forward(const Tensor& latents, std::span<const Tensor> text,
                                    std::span<const float> timesteps, const TapSink& taps,
                                    const std::function<bool()>& cancelled) {
  Impl& m = *impl_;
  const Config& c = m.config;
  if (latents.shape.size() != 4 || latents.size(1) != c.in_channels)
    return usage_error("[transformer] expected latents [B, {}, h, w], got {}", c.in_channels, to_string(latents.shape));
  std::vector<int64_t> lengths;
  for (const Tensor& t : text) {
    if (t.shape.size() != 2 || t.size(1) != c.text_in_dim) {
      return usage_error(
          "[transformer] expected text features [tokens, {}], got {} (is the text encoder another model's?)",
          c.text_in_dim, to_string(t.shape));
    }
    lengths.push_back(t.size(0));
  }
  DQ_TRY(GraphShape shape, graph_shape(c, latents.size(0), latents.size(2), latents.size(3), lengths, bool(taps)));
  if (timesteps.size() != text.size() ||
      !std::all_of(timesteps.begin(), timesteps.end(), [](float t) { return std::isfinite(t); }))
    return usage_error("[transformer] expected {} finite timesteps, got {} values", text.size(), timesteps.size());

  DQ_CHECK(m.prepare(shape));
  DQ_CHECK(m.set_tables(lengths));
  DQ_CHECK(m.runner->set("latents", to_patches(latents, c.patch_size)));
  DQ_CHECK(m.runner->set("text", m.padded(text)));
  DQ_CHECK(m.runner->set("time", time_sinusoid(timesteps, c.hidden_size)));
  DQ_CHECK(m.runner->run(cancelled));
  if (taps) {
    taps("rope_angles", m.angles());
    DQ_CHECK(m.runner->send_taps(taps));
  }
  DQ_TRY(Tensor patches, m.runner->read("patches"));
  return from_patches(patches.data, shape.batch, c.out_channels, shape.h, shape.w, c.patch_size);
}

Result<size_t> Transformer::measure(int64_t batch, int64_t h, int64_t w, std::span<const int64_t> text_lengths) {
  DQ_TRY(GraphShape shape, graph_shape(impl_->config, batch, h, w, text_lengths, false));
  return Runner(build_graph(*impl_->device, impl_->config, *impl_->weights, shape)).measure();
}

double Transformer::flops(const Config& c, int64_t batch, int64_t h, int64_t w, int64_t text_tokens) {
  const double hidden = static_cast<double>(c.hidden_size), ffn = static_cast<double>(c.ffn_hidden_size);
  const double patch = static_cast<double>(c.patch_size * c.patch_size);
  const double image = static_cast<double>(h) * static_cast<double>(w) / patch;
  const double text = static_cast<double>(text_tokens), tokens = image + text;
  const double layer = tokens * (4 * hidden * hidden + 3 * hidden * ffn) + 2 * tokens * tokens * hidden;
  const double embed = image * hidden * patch * static_cast<double>(c.in_channels + c.out_channels) +
                       (c.has_text_proj() ? text * hidden * static_cast<double>(c.text_in_dim) : 0);
  const double modulation = (2 + 6 + 2) * hidden * hidden;
  return 2 * static_cast<double>(batch) * (static_cast<double>(c.num_layers) * layer + embed + modulation);
}

}  // namespace danqing::ernie_image
