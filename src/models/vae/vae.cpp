#include "models/vae/vae.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/try.h"
#include "models/vae/graph.h"

namespace danqing::vae {
namespace {

constexpr int64_t kMaxPixels = int64_t{1} << 30;  // of one picture; keeps every size of a graph far inside 63 bits

Result<void> check_decode(const Config& c, int64_t batch, int64_t h, int64_t w) {
  const int64_t limit = kMaxPixels / (c.scale() * c.scale());
  if (batch >= 1 && h >= 1 && w >= 1 && h <= limit && w <= limit / h) return {};
  return usage_error("[vae] expected latents of at least 1x1 and at most {} values a channel, got {} of {}x{}", limit,
                     batch, h, w);
}

// std as the pipeline has it: its own constant, in f32.
Result<std::vector<float>> statistics(const BoundTensors& bound, std::string_view name, int64_t count) {
  const BoundTensor* t = bound.find(name);
  DQ_TRY(Tensor values, read_f32(*bound.source, t->stored->name));
  for (float v : values.data) {
    if (!std::isfinite(v))
      return bad_input("[vae] {}: tensor '{}' expected {} finite values, got {}", bound.source->path().string(),
                       t->stored->name, count, v);
  }
  return std::move(values.data);
}

}  // namespace

struct Vae::Impl {
  std::shared_ptr<Device> device;
  Config config;
  Part part = Part::both;
  std::shared_ptr<const Weights> weights;
  std::vector<float> bn_mean, bn_std;

  // The graph of the last call, which is the next one's too when pictures of one size follow each other.
  struct Key {
    bool decoder = false, taps = false;
    int64_t h = 0, w = 0;
    bool operator==(const Key&) const = default;
  };
  Key key;
  std::optional<Runner> runner;

  Result<void> prepare(const Key& wanted) {
    if (runner && key == wanted) return {};
    runner.reset();
    key = wanted;
    Runner next(key.decoder ? build_decoder(*device, config, *weights, key.h, key.w, key.taps)
                            : build_encoder(*device, config, *weights, key.h, key.w));
    DQ_CHECK(next.prepare());
    runner.emplace(std::move(next));
    return {};
  }

  /// Runs the prepared graph on one item [C, height, width].
  Result<Tensor> run(const char* input, const char* output, const Tensor& x, const std::function<bool()>& cancelled) {
    DQ_CHECK(runner->set(input, x.data));
    DQ_CHECK(runner->run(cancelled));
    return runner->read(output);
  }
};

Vae::Vae(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Vae::~Vae() = default;
const Config& Vae::config() const { return impl_->config; }
uint64_t Vae::weight_bytes() const { return impl_->weights->bytes(); }
const WeightSizes& Vae::weight_sizes() const { return impl_->weights->sizes(); }
const std::vector<float>& Vae::bn_mean() const { return impl_->bn_mean; }
const std::vector<float>& Vae::bn_std() const { return impl_->bn_std; }

Result<std::unique_ptr<Vae>> Vae::load(std::shared_ptr<Device> device, const ComponentFiles& files, Part part,
                                       const WeightPolicy& policy, const LoadProgress& progress) {
  auto impl = std::make_unique<Impl>();
  DQ_TRY(impl->config, files.config ? Config::parse(*files.config, (files.path / "config.json").string())
                                    : Config::infer(*files.source));
  const Config& c = impl->config;
  DQ_TRY(BoundTensors bound, danqing::bind(files.source, tensor_table(c, part), name_map(c), "VAE"));
  if (c.has_batch_norm) {
    const int64_t n = c.latent_channels * c.patch_size[0] * c.patch_size[1];
    DQ_TRY(impl->bn_mean, statistics(bound, "bn.running_mean", n));
    DQ_TRY(impl->bn_std, statistics(bound, "bn.running_var", n));
    for (float& v : impl->bn_std) {
      if (v < 0)
        return bad_input("[vae] {}: tensor 'bn.running_var' expected no negative value, got {}", files.path.string(),
                         v);
      v = std::sqrt(v + 1e-5f);
    }
  }
  DQ_TRY(impl->weights, Weights::load(device, bound, policy, progress));
  impl->device = std::move(device);
  impl->part = part;
  return std::unique_ptr<Vae>(new Vae(std::move(impl)));
}

Result<Tensor> Vae::decode(const Tensor& z, const TapSink& taps, const std::function<bool()>& cancelled) {
  Impl& m = *impl_;
  const Config& c = m.config;
  if (m.part == Part::encoder) return usage_error("[vae] expected the decoder, got a VAE loaded without it");
  if (z.shape.size() != 4 || z.size(1) != c.latent_channels)
    return usage_error("[vae] expected latents [B, {}, h, w], got {}", c.latent_channels, to_string(z.shape));
  const int64_t batch = z.size(0), h = z.size(2), w = z.size(3);
  DQ_CHECK(check_decode(c, batch, h, w));
  DQ_CHECK(m.prepare({true, static_cast<bool>(taps), h, w}));

  Tensor out(Shape{batch, c.out_channels, h * c.scale(), w * c.scale()});
  for (int64_t b = 0; b < batch; ++b) {
    DQ_TRY(Tensor picture, m.run("latents", "picture", item(z, b), cancelled));
    std::copy(picture.data.begin(), picture.data.end(), out.data.begin() + b * picture.count());
    if (!taps) continue;
    DQ_CHECK(m.runner->send_taps(taps, batch > 1 ? fmt::format("{}.", b) : ""));
  }
  return out;
}

Result<Vae::Posterior> Vae::encode(const Tensor& picture, const std::function<bool()>& cancelled) {
  Impl& m = *impl_;
  const Config& c = m.config;
  const int64_t f = c.scale(), latent = c.latent_channels;
  if (m.part == Part::decoder) return usage_error("[vae] expected the encoder, got a VAE loaded without it");
  if (picture.shape.size() != 4 || picture.size(1) != c.in_channels)
    return usage_error("[vae] expected pictures [B, {}, H, W], got {}", c.in_channels, to_string(picture.shape));
  const int64_t batch = picture.size(0), height = picture.size(2), width = picture.size(3);
  if (batch < 1 || height < f || width < f || height % f != 0 || width % f != 0 || height > kMaxPixels / width)
    return usage_error("[vae] expected picture height and width in multiples of {}, got {}x{}", f, height, width);
  DQ_CHECK(m.prepare({false, false, height, width}));

  Posterior out{Tensor(Shape{batch, latent, height / f, width / f}),
                Tensor(Shape{batch, latent, height / f, width / f})};
  const int64_t half = out.mean.count() / batch;
  for (int64_t b = 0; b < batch; ++b) {
    DQ_TRY(Tensor moments, m.run("picture", "moments", item(picture, b), cancelled));
    std::copy_n(moments.data.begin(), half, out.mean.data.begin() + b * half);
    std::transform(moments.data.begin() + half, moments.data.end(), out.logvar.data.begin() + b * half,
                   [](float v) { return std::clamp(v, -30.0f, 20.0f); });
  }
  return out;
}

Result<size_t> Vae::measure_decode(int64_t batch, int64_t h, int64_t w) {
  DQ_CHECK(check_decode(impl_->config, batch, h, w));
  return Runner(build_decoder(*impl_->device, impl_->config, *impl_->weights, h, w, false)).measure();
}

}  // namespace danqing::vae
