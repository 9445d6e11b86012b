#include "models/z_image/transformer.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/try.h"
#include "models/kept_runner.h"
#include "models/z_image/graph.h"
#include "models/z_image/positions.h"

namespace danqing::z_image {
namespace {

constexpr int64_t kMaxTokens = int64_t{1} << 22;  // of a whole batch; keeps every size of a graph far inside 63 bits

Result<GraphShape> graph_shape(const Config& c, int64_t h, int64_t w, std::span<const int64_t> lengths, bool taps) {
  const int64_t p = c.patch_size;
  if (h < p || w < p || h > kMaxTokens || w > kMaxTokens || h % p != 0 || w % p != 0)
    return usage_error("[transformer] expected latent height and width in multiples of {}, got {}x{}", p, h, w);
  GraphShape s{static_cast<int64_t>(lengths.size()), h / p, w / p, 0, false, taps};
  if (s.batch < 1 || s.batch > kMaxTokens)
    return usage_error("[transformer] expected one caption per item of the batch, got {}", lengths.size());
  if (s.h > c.axes_lens[1] || s.w > c.axes_lens[2])
    return usage_error("[transformer] expected latents of at most {}x{} (the model's axes_lens), got {}x{}",
                       c.axes_lens[1] * p, c.axes_lens[2] * p, h, w);
  for (int64_t n : lengths) {
    // The image stands one position behind the padded caption.
    if (n < 1 || n > kMaxTokens || padded(n) + 1 >= c.axes_lens[0])
      return usage_error("[transformer] expected 1 to {} caption tokens (the model's axes_lens), got {}",
                         (c.axes_lens[0] - 2) / kTokenMultiple * kTokenMultiple, n);
    s.ragged |= padded(n) != padded(lengths[0]);
    s.caption_tokens = std::max(s.caption_tokens, padded(n));
  }
  if (s.tokens() > kMaxTokens / s.batch)
    return usage_error("[transformer] expected at most {} tokens in a batch, got {} x {}", kMaxTokens, s.batch,
                       s.tokens());
  return s;
}

/// Rows of a table [B * tokens]: each item's own rows, then the pad token (the row behind them all).
std::vector<int32_t> rows_with_padding(std::span<const int64_t> lengths, int64_t tokens) {
  const int64_t all = static_cast<int64_t>(lengths.size()) * tokens;
  std::vector<int32_t> rows(static_cast<size_t>(all), static_cast<int32_t>(all));
  for (size_t b = 0; b < lengths.size(); ++b)
    for (int64_t j = 0; j < lengths[b]; ++j) {
      const int64_t at = static_cast<int64_t>(b) * tokens + j;
      rows[static_cast<size_t>(at)] = static_cast<int32_t>(at);
    }
  return rows;
}

/// Every value twice in a row: pairs of elements turn by one angle.
void append_pairs(const std::vector<float>& values, std::vector<float>& out) {
  for (float v : values) out.insert(out.end(), 2, v);
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

  // Positions, padding and mask; they stay in the graph's inputs until the caption lengths change.
  Result<void> set_tables(const std::vector<int64_t>& wanted) {
    if (lengths == wanted) return {};
    lengths.clear();
    std::vector<float> cos, sin, mask;
    for (size_t b = 0; b < (shape.ragged ? wanted.size() : 1); ++b) {
      std::vector<Position> positions = image_positions(shape.h, shape.w, padded(wanted[b]));
      const std::vector<Position> caption = caption_positions(shape.caption_tokens);
      positions.insert(positions.end(), caption.begin(), caption.end());
      const RopeTables tables = rope_tables(config, positions);
      append_pairs(tables.cos, cos);
      append_pairs(tables.sin, sin);
      if (!shape.ragged) continue;
      mask.resize(mask.size() + static_cast<size_t>(shape.image_tokens() + padded(wanted[b])), 0.0f);
      mask.resize((b + 1) * static_cast<size_t>(shape.tokens()), -INFINITY);
    }
    DQ_CHECK(runner->set("cos", cos));
    DQ_CHECK(runner->set("sin", sin));
    if (shape.ragged) DQ_CHECK(runner->set("mask", mask));
    const std::vector<int64_t> images(wanted.size(), shape.h * shape.w);
    DQ_CHECK(runner->set("image_rows", rows_with_padding(images, shape.image_tokens())));
    DQ_CHECK(runner->set("caption_rows", rows_with_padding(wanted, shape.caption_tokens)));
    lengths = wanted;
    return {};
  }

  /// Captions [B, T, cap_feat_dim], each filled up with its last row: the model replaces those after embedding.
  std::vector<float> filled(std::span<const Tensor* const> captions) const {
    std::vector<float> rows;
    const int64_t width = config.cap_feat_dim;
    for (const Tensor* t : captions) {
      rows.insert(rows.end(), t->data.begin(), t->data.end());
      for (int64_t n = t->size(0); n < shape.caption_tokens; ++n)
        rows.insert(rows.end(), t->data.end() - width, t->data.end());
    }
    return rows;
  }

  void send_tables(const TapSink& taps) const {
    const auto send = [&](const std::string& name, const std::vector<Position>& positions) {
      const auto n = static_cast<int64_t>(positions.size());
      Tensor ids(Shape{n, 3});
      for (size_t i = 0; i < ids.data.size(); ++i) ids.data[i] = static_cast<float>(positions[i / 3][i % 3]);
      RopeTables tables = rope_tables(config, positions);
      taps(name + ".pos_ids", ids);
      taps(name + ".cos", Tensor({n, config.head_dim() / 2}, std::move(tables.cos)));
      taps(name + ".sin", Tensor({n, config.head_dim() / 2}, std::move(tables.sin)));
    };
    send("rope.image", image_positions(shape.h, shape.w, padded(lengths[0])));
    // The library lists a (0, 0, 0) for each padding token behind those, and cuts the list off again.
    std::vector<Position> caption = caption_positions(padded(lengths[0]));
    caption.resize(caption.size() + static_cast<size_t>(padded(lengths[0]) - lengths[0]), Position{0, 0, 0});
    send("rope.caption", caption);
  }

  /// Items `which`, whose latents are of one size.
  Result<void> run(std::span<const Tensor> latents, std::span<const Tensor> captions, std::span<const float> times,
                   const std::vector<size_t>& which, const TapSink& taps, const std::function<bool()>& cancelled,
                   std::vector<Tensor>& out) {
    std::vector<int64_t> wanted;
    std::vector<float> patches, of_items;
    std::vector<const Tensor*> text;
    for (size_t i : which) {
      wanted.push_back(captions[i].size(0));
      text.push_back(&captions[i]);
      of_items.push_back(times[i]);
    }
    const Tensor& first = latents[which[0]];
    DQ_TRY(const GraphShape s, graph_shape(config, first.size(1), first.size(2), wanted, static_cast<bool>(taps)));
    for (size_t i : which) append_patches(latents[i], config.patch_size, patches);
    DQ_CHECK(prepare(s));
    DQ_CHECK(set_tables(wanted));
    DQ_CHECK(runner->set("latents", patches));
    DQ_CHECK(runner->set("caption", filled(text)));
    DQ_CHECK(runner->set("time", time_sinusoid(config, of_items)));
    DQ_CHECK(runner->run(cancelled));
    if (taps) {
      send_tables(taps);
      DQ_CHECK(runner->send_taps(taps));
    }
    DQ_TRY(const Tensor result, runner->read("patches"));
    const std::span<const float> all(result.data);
    const size_t one = all.size() / which.size();
    for (size_t k = 0; k < which.size(); ++k)
      out[which[k]] = from_patches(all.subspan(k * one, one), config.in_channels, s.h, s.w, config.patch_size);
    return {};
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
  const Config& c = impl->config;
  DQ_TRY(BoundTensors bound, danqing::bind(files.source, tensor_table(c, has_fused_qkv(*files.source)), name_map(c),
                                           "Z-Image transformer"));
  DQ_CHECK(apply_adapters(bound, files.adapters, name_map(c)));
  DQ_TRY(impl->weights, Weights::load(device, bound, policy, progress));
  impl->device = std::move(device);
  return std::unique_ptr<Transformer>(new Transformer(std::move(impl)));
}

Result<std::vector<Tensor>> Transformer::forward(std::span<const Tensor> latents, std::span<const Tensor> captions,
                                                 std::span<const float> times, const TapSink& taps,
                                                 const std::function<bool()>& cancelled) {
  const Config& c = impl_->config;
  if (latents.empty() || captions.size() != latents.size() || times.size() != latents.size())
    return usage_error("[transformer] expected one caption and one time per latents, got {} and {} for {}",
                       captions.size(), times.size(), latents.size());
  std::map<Shape, std::vector<size_t>> by_size;
  for (size_t i = 0; i < latents.size(); ++i) {
    if (latents[i].shape.size() != 3 || latents[i].size(0) != c.in_channels)
      return usage_error("[transformer] expected latents [{}, h, w], got {}", c.in_channels,
                         to_string(latents[i].shape));
    if (captions[i].shape.size() != 2 || captions[i].size(1) != c.cap_feat_dim)
      return usage_error(
          "[transformer] expected text features [tokens, {}], got {} (is the text encoder another model's?)",
          c.cap_feat_dim, to_string(captions[i].shape));
    if (!std::isfinite(times[i])) return usage_error("[transformer] expected finite times, got {}", times[i]);
    by_size[latents[i].shape].push_back(i);
  }
  std::vector<Tensor> out(latents.size());
  for (const auto& [size, which] : by_size) DQ_CHECK(impl_->run(latents, captions, times, which, taps, cancelled, out));
  return out;
}

Result<size_t> Transformer::measure(int64_t h, int64_t w, std::span<const int64_t> caption_lengths) {
  DQ_TRY(const GraphShape s, graph_shape(impl_->config, h, w, caption_lengths, false));
  return Runner(build_graph(*impl_->device, impl_->config, *impl_->weights, s)).measure();
}

double Transformer::flops(const Config& c, int64_t batch, int64_t h, int64_t w, int64_t caption_tokens) {
  const double dim = static_cast<double>(c.dim), ffn = static_cast<double>(c.ffn_dim);
  const double patch = static_cast<double>(c.patch_size * c.patch_size * c.in_channels);
  const auto image = static_cast<double>(padded((h / c.patch_size) * (w / c.patch_size)));
  const auto text = static_cast<double>(padded(caption_tokens));
  const auto layer = [&](double tokens) {
    return tokens * (4 * dim * dim + 3 * dim * ffn) + 2 * tokens * tokens * dim;
  };
  const double layers = static_cast<double>(c.n_refiner_layers) * (layer(image) + layer(text)) +
                        static_cast<double>(c.n_layers) * layer(image + text);
  const double embed = 2 * image * dim * patch + text * patch * dim + text * dim * static_cast<double>(c.cap_feat_dim);
  const double modulation =
      static_cast<double>(c.time_dim()) *
      (4 * dim * static_cast<double>(c.n_layers + c.n_refiner_layers) + dim + static_cast<double>(c.time_hidden));
  return 2 * static_cast<double>(batch) * (layers + embed + modulation);
}

}  // namespace danqing::z_image
