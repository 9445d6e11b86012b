#include "models/vae/vae.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>

#include "base/try.h"
#include "models/vae/tiled.h"

namespace danqing::vae {
namespace {

constexpr int64_t kMaxPixels = int64_t{1} << 30;  // of one picture; keeps every size of a graph far inside 63 bits

Result<void> check_size(const Config& c, int64_t batch, int64_t h, int64_t w, const Tiling& t) {
  const int64_t limit = kMaxPixels / (c.scale() * c.scale());
  if (t.tile < 0) return usage_error("[vae] expected a tile of at least 1 latent, or 0 for no tiles, got {}", t.tile);
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
  Chain decoder, encoder;

  // The graph of the last whole picture, which is the next one's too when pictures of one size follow each other.
  struct Key {
    bool decoder = false, taps = false;
    int64_t h = 0, w = 0;  // latents
    bool operator==(const Key&) const = default;
  };
  Key key;
  std::optional<Runner> runner;

  Network network(bool decode) const {
    return {*device, *weights, decode ? decoder : encoder, static_cast<int>(config.norm_num_groups)};
  }

  Result<void> prepare(const Key& wanted) {
    if (runner && key == wanted) return {};
    runner.reset();
    key = wanted;
    Runner next(build_whole(network(key.decoder), key.h, key.w, key.taps));
    DQ_CHECK(next.prepare());
    runner.emplace(std::move(next));
    return {};
  }

  bool in_tiles(const Tiling& t, int64_t h, int64_t w) const { return t.tile > 0 && (t.tile < h || t.tile < w); }
  TiledRun tiled(bool decode, int64_t h, int64_t w, const Tiling& t) const {
    return TiledRun(network(decode), device, h, w, t);
  }

  Result<void> check_part(bool decode) const {
    if (decode && part == Part::encoder) return usage_error("[vae] expected the decoder, got a VAE loaded without it");
    if (!decode && part == Part::decoder) return usage_error("[vae] expected the encoder, got a VAE loaded without it");
    return {};
  }

  /// Every item of x [B, C, H, W] through the decoder or the encoder; h x w latents each.
  Result<Tensor> run(bool decode, const Tensor& x, int64_t h, int64_t w, const Tiling& tiling, const TapSink& taps,
                     const std::function<bool()>& cancelled, const TileProgress& progress) {
    const Chain& chain = decode ? decoder : encoder;
    const int64_t batch = x.size(0), each = x.count() / batch;
    const bool tiles = in_tiles(tiling, h, w) && !taps;
    std::optional<TiledRun> run;
    if (tiles) {
      release();
      run.emplace(tiled(decode, h, w, tiling));
    } else {
      DQ_CHECK(prepare({decode, static_cast<bool>(taps), h, w}));
    }
    const int shift = chain.points.back().shift;
    Tensor out;
    const Shape shape{batch, chain.points.back().channels, h << shift, w << shift};
    const int64_t result = element_count(shape) / batch;
    const auto room = [&](int64_t b) {  // not before it is needed: it is large, and so are the pictures on the way
      if (out.data.empty()) out = Tensor(shape);
      return out.data.data() + b * result;
    };
    for (int64_t b = 0; b < batch; ++b) {
      const std::span<const float> from(x.data.data() + b * each, static_cast<size_t>(each));
      const auto share = [&](double done) { progress((static_cast<double>(b) + done) / static_cast<double>(batch)); };
      if (tiles) {
        DQ_CHECK(run->run(
            from.data(), [&] { return room(b); }, cancelled, progress ? TileProgress(share) : TileProgress()));
        continue;
      }
      DQ_CHECK(runner->set("x", from));
      DQ_CHECK(runner->run(cancelled));
      DQ_TRY(const Tensor y, runner->read("y"));
      std::copy(y.data.begin(), y.data.end(), room(b));
      if (taps) DQ_CHECK(runner->send_taps(taps, batch > 1 ? fmt::format("{}.", b) : ""));
      if (progress) share(1);
    }
    return out;
  }

  Result<size_t> measure(bool decode, int64_t batch, int64_t h, int64_t w, const Tiling& t) {
    DQ_CHECK(check_part(decode));
    DQ_CHECK(check_size(config, batch, h, w, t));
    if (in_tiles(t, h, w)) return tiled(decode, h, w, t).measure();
    return Runner(build_whole(network(decode), h, w, false)).measure();
  }

  Result<size_t> host_bytes(bool decode, int64_t h, int64_t w, const Tiling& t) const {
    DQ_CHECK(check_size(config, 1, h, w, t));
    return in_tiles(t, h, w) ? tiled(decode, h, w, t).host_bytes() : 0;
  }

  void release() { runner.reset(); }
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
  impl->decoder = decoder_chain(c), impl->encoder = encoder_chain(c);
  return std::unique_ptr<Vae>(new Vae(std::move(impl)));
}

Result<Tensor> Vae::decode(const Tensor& z, const TapSink& taps, const std::function<bool()>& cancelled) {
  return decode(z, Tiling{}, taps, cancelled);
}

Result<Tensor> Vae::decode(const Tensor& z, const Tiling& tiling, const TapSink& taps,
                           const std::function<bool()>& cancelled, const TileProgress& progress) {
  DQ_CHECK(impl_->check_part(true));
  const Config& c = impl_->config;
  if (z.shape.size() != 4 || z.size(1) != c.latent_channels)
    return usage_error("[vae] expected latents [B, {}, h, w], got {}", c.latent_channels, to_string(z.shape));
  DQ_CHECK(check_size(c, z.size(0), z.size(2), z.size(3), tiling));
  return impl_->run(true, z, z.size(2), z.size(3), tiling, taps, cancelled, progress);
}

Result<Vae::Posterior> Vae::encode(const Tensor& picture, const std::function<bool()>& cancelled) {
  return encode(picture, Tiling{}, cancelled);
}

Result<Vae::Posterior> Vae::encode(const Tensor& picture, const Tiling& tiling, const std::function<bool()>& cancelled,
                                   const TileProgress& progress) {
  DQ_CHECK(impl_->check_part(false));
  const Config& c = impl_->config;
  const int64_t f = c.scale();
  if (picture.shape.size() != 4 || picture.size(1) != c.in_channels)
    return usage_error("[vae] expected pictures [B, {}, H, W], got {}", c.in_channels, to_string(picture.shape));
  const int64_t batch = picture.size(0), height = picture.size(2), width = picture.size(3), h = height / f,
                w = width / f;
  if (height % f != 0 || width % f != 0 || h < 1 || w < 1)
    return usage_error("[vae] expected picture height and width in multiples of {}, got {}x{}", f, height, width);
  DQ_CHECK(check_size(c, batch, h, w, tiling));
  DQ_TRY(const Tensor moments, impl_->run(false, picture, h, w, tiling, {}, cancelled, progress));

  const Shape shape{batch, c.latent_channels, h, w};
  Posterior out{Tensor(shape), Tensor(shape)};
  const int64_t half = out.mean.count() / batch;
  for (int64_t b = 0; b < batch; ++b) {
    const auto from = moments.data.begin() + 2 * b * half;
    std::copy_n(from, half, out.mean.data.begin() + b * half);
    std::transform(from + half, from + 2 * half, out.logvar.data.begin() + b * half,
                   [](float v) { return std::clamp(v, -30.0f, 20.0f); });
  }
  return out;
}

Result<size_t> Vae::measure_decode(int64_t batch, int64_t h, int64_t w, const Tiling& tiling) {
  return impl_->measure(true, batch, h, w, tiling);
}
Result<size_t> Vae::measure_encode(int64_t batch, int64_t h, int64_t w, const Tiling& tiling) {
  return impl_->measure(false, batch, h, w, tiling);
}
Result<size_t> Vae::host_bytes_decode(int64_t h, int64_t w, const Tiling& tiling) {
  return impl_->host_bytes(true, h, w, tiling);
}
Result<size_t> Vae::host_bytes_encode(int64_t h, int64_t w, const Tiling& tiling) {
  return impl_->host_bytes(false, h, w, tiling);
}

Result<double> Vae::repeated_work(int64_t h, int64_t w, const Tiling& tiling) {
  DQ_CHECK(check_size(impl_->config, 1, h, w, tiling));
  if (!impl_->in_tiles(tiling, h, w)) return 1.0;
  return 2 * impl_->tiled(true, h, w, tiling).schedule().work() / decode_flops(impl_->config, 1, h, w);
}

void Vae::release() { impl_->release(); }

}  // namespace danqing::vae
