#include "bench/stages.h"

#include "base/try.h"
#include "base/units.h"
#include "models/ernie_image/transformer.h"
#include "models/mistral3/model.h"
#include "models/qwen3/qwen3.h"
#include "models/vae/vae.h"
#include "models/z_image/transformer.h"
#include "sampling/random.h"

namespace danqing::app {
namespace {

Tensor noise(Shape shape, uint64_t seed) {
  Tensor t(std::move(shape));
  CpuGenerator(seed).randn(t.data);
  return t;
}

std::vector<int32_t> token_ids(int n, int64_t vocabulary) {
  std::vector<int32_t> ids(static_cast<size_t>(n));
  for (int i = 0; i < n; ++i) ids[static_cast<size_t>(i)] = static_cast<int32_t>((i * 7919 + 17) % vocabulary);
  return ids;
}

/// A causal prompt of n tokens: each sees half of them on average. The head's one row is left out.
double prompt_flops(const mistral3::Config& c, int n, int64_t layers) {
  return n * mistral3::flops_per_token(c, (n + 1) / 2, layers, false);
}

Result<std::unique_ptr<mistral3::TextEncoder>> load_text_encoder(std::shared_ptr<Device> device,
                                                                 const ComponentFiles& f, const WeightPolicy& policy) {
  if (is_z_image(f.config ? &*f.config : nullptr, f.source.get()))
    return qwen3::load_text_encoder(std::move(device), f, policy);
  return mistral3::TextEncoder::load(std::move(device), f, policy);
}

class Bench {
 public:
  Bench(std::shared_ptr<Device> device, const ComponentProvider& components, const BenchOptions& options,
        const std::function<void(Measurement)>& on_row, const std::function<bool()>& cancelled)
      : device_(std::move(device)), components_(components), o_(options), on_row_(on_row), cancelled_(cancelled) {}

  Result<void> run() {
    if (o_.wants("text")) DQ_CHECK(with("text_encoder", [&](const ComponentFiles& f) { return text(f); }));
    if (o_.wants("enhancer")) DQ_CHECK(with("pe", [&](const ComponentFiles& f) { return enhancer(f); }));
    if (o_.wants("denoiser")) DQ_CHECK(with("transformer", [&](const ComponentFiles& f) { return denoiser(f); }));
    if (o_.wants("vae")) DQ_CHECK(with("vae", [&](const ComponentFiles& f) { return vae(f); }));
    return {};
  }

 private:
  Result<void> with(const std::string& role, const std::function<Result<void>(const ComponentFiles&)>& run) {
    DQ_TRY(std::optional<ComponentFiles> files, components_.get(role));
    if (cancelled_()) return fail(ErrorCode::cancelled, "[bench] stopped");
    return files ? run(*files) : Result<void>();
  }

  /// Times one load (page cache warm for files: the headers' pages and, after a first run, all).
  template <class Load>
  auto timed_load(const std::string& role, Load load) -> decltype(load()) {
    decltype(load()) loaded = fail(ErrorCode::failed, "not loaded");
    DQ_TRY(Measurement m, measure("load", role, 1, false, [&]() -> Result<void> {
             loaded = load();
             if (!loaded) return loaded.error();
             return {};
           }));
    m.weight_bytes = (*loaded)->weight_bytes();
    on_row_(std::move(m));
    return loaded;
  }

  Result<void> text(const ComponentFiles& f) {
    DQ_TRY(auto encoder,
           timed_load("text_encoder", [&] { return load_text_encoder(device_, f, components_.policy(f)); }));
    const auto ids = token_ids(o_.encoder_tokens, encoder->config().vocab_size);
    DQ_TRY(Measurement m,
           measure("text", fmt::format("{} tokens", ids.size()), o_.repetitions, o_.warm_up, [&]() -> Result<void> {
             DQ_TRY([[maybe_unused]] const Tensor t, encoder->encode(ids));
             return {};
           }));
    const mistral3::Config& c = encoder->config();
    m.flops = prompt_flops(c, o_.encoder_tokens, c.num_hidden_layers - 1);  // the last layer does not run
    m.tokens_per_second = static_cast<double>(ids.size()) / m.seconds;
    m.weight_bytes = encoder->weight_bytes();
    on_row_(std::move(m));
    return {};
  }

  Result<void> enhancer(const ComponentFiles& f) {
    DQ_TRY(auto model, timed_load("pe", [&] { return mistral3::CausalLM::load(device_, f, components_.policy(f)); }));
    const auto prompt = token_ids(o_.enhancer_prompt, model->config().vocab_size);
    DQ_TRY(Measurement p, measure("enhancer", fmt::format("prompt of {} tokens", prompt.size()), o_.repetitions,
                                  o_.warm_up, [&]() -> Result<void> {
                                    DQ_CHECK(model->reset(o_.enhancer_prompt + o_.new_tokens * (o_.repetitions + 1)));
                                    DQ_TRY([[maybe_unused]] const std::vector<float> logits,
                                           model->append(prompt, cancelled_));
                                    return {};
                                  }));
    p.tokens_per_second = static_cast<double>(prompt.size()) / p.seconds;
    p.flops = prompt_flops(model->config(), o_.enhancer_prompt, -1);
    on_row_(std::move(p));
    DQ_TRY(Measurement m, measure("enhancer", fmt::format("{} new tokens, one stream", o_.new_tokens), o_.repetitions,
                                  true, [&]() -> Result<void> {
                                    for (int i = 0; i < o_.new_tokens; ++i) {
                                      const int32_t id =
                                          static_cast<int32_t>((i * 31 + 5) % model->config().vocab_size);
                                      DQ_TRY([[maybe_unused]] const std::vector<float> logits,
                                             model->append(std::span(&id, 1), cancelled_));
                                    }
                                    return {};
                                  }));
    m.tokens_per_second = o_.new_tokens / m.seconds;
    const int in_the_middle = o_.enhancer_prompt + o_.new_tokens * (o_.repetitions + 1) / 2;  // of all repetitions
    m.flops = o_.new_tokens * mistral3::flops_per_token(model->config(), in_the_middle);
    m.weight_bytes = model->weight_bytes();
    on_row_(std::move(m));
    return {};
  }

  /// One pass; `run` computes it, `flops` and `compute_bytes` say what it takes.
  Result<void> denoiser_pass(int64_t layers, double flops, uint64_t weight_bytes, uint64_t compute_bytes,
                             const std::function<Result<void>()>& run) {
    DQ_TRY(Measurement m, measure("denoiser",
                                  fmt::format("one pass {}x{}, batch {}, {} text tokens, {} layers", o_.width,
                                              o_.height, o_.batch, o_.text_tokens, layers),
                                  o_.repetitions, o_.warm_up, run));
    m.flops = flops;
    m.weight_bytes = weight_bytes;
    m.compute_bytes = compute_bytes;
    on_row_(std::move(m));
    return {};
  }

  Result<void> denoiser(const ComponentFiles& f) {
    const std::vector<int64_t> lengths(static_cast<size_t>(o_.batch), o_.text_tokens);
    if (is_z_image(f.config ? &*f.config : nullptr, f.source.get())) return z_image_denoiser(f, lengths);
    DQ_TRY(auto model, timed_load("transformer",
                                  [&] { return ernie_image::Transformer::load(device_, f, components_.policy(f)); }));
    const ernie_image::Config& c = model->config();
    const int64_t h = o_.height / 16, w = o_.width / 16;
    const Tensor latents = noise({o_.batch, c.in_channels, h, w}, 1);
    const std::vector<Tensor> text(static_cast<size_t>(o_.batch), noise({o_.text_tokens, c.text_in_dim}, 2));
    const std::vector<float> timesteps(static_cast<size_t>(o_.batch), 500.0f);
    DQ_TRY(const size_t bytes, model->measure(o_.batch, h, w, lengths));
    return denoiser_pass(c.num_layers, ernie_image::Transformer::flops(c, o_.batch, h, w, o_.text_tokens),
                         model->weight_bytes(), bytes, [&]() -> Result<void> {
                           DQ_TRY([[maybe_unused]] const Tensor out,
                                  model->forward(latents, text, timesteps, {}, cancelled_));
                           return {};
                         });
  }

  Result<void> z_image_denoiser(const ComponentFiles& f, const std::vector<int64_t>& lengths) {
    DQ_TRY(auto model,
           timed_load("transformer", [&] { return z_image::Transformer::load(device_, f, components_.policy(f)); }));
    const z_image::Config& c = model->config();
    const int64_t h = o_.height / 8, w = o_.width / 8;
    const std::vector<Tensor> latents(lengths.size(), noise({c.in_channels, h, w}, 1));
    const std::vector<Tensor> text(lengths.size(), noise({o_.text_tokens, c.cap_feat_dim}, 2));
    const std::vector<float> times(lengths.size(), 0.5f);
    DQ_TRY(const size_t bytes, model->measure(h, w, lengths));
    return denoiser_pass(c.n_layers, z_image::Transformer::flops(c, o_.batch, h, w, o_.text_tokens),
                         model->weight_bytes(), bytes, [&]() -> Result<void> {
                           DQ_TRY([[maybe_unused]] const std::vector<Tensor> out,
                                  model->forward(latents, text, times, {}, cancelled_));
                           return {};
                         });
  }

  Result<void> vae(const ComponentFiles& f) {
    DQ_TRY(auto model,
           timed_load("vae", [&] { return vae::Vae::load(device_, f, vae::Part::decoder, components_.policy(f)); }));
    const int64_t h = o_.height / model->config().scale(), w = o_.width / model->config().scale();
    const Tensor z = noise({1, model->config().latent_channels, h, w}, 3);
    const vae::Tiling& tiling = o_.vae_tiling;
    std::string what = fmt::format("decode {}x{}", o_.width, o_.height);
    if (tiling.tile > 0) {
      DQ_TRY(const double repeated, model->repeated_work(h, w, tiling));
      what += fmt::format(", tiles of {}, {} kept, {:.2f}x the work", tiling.tile, format_bytes(tiling.host_memory),
                          repeated);
    }
    DQ_TRY(Measurement m, measure("vae", what, o_.repetitions, o_.warm_up, [&]() -> Result<void> {
             DQ_TRY([[maybe_unused]] const Tensor out, model->decode(z, tiling, {}, cancelled_));
             return {};
           }));
    m.flops = vae::Vae::decode_flops(model->config(), 1, h, w);
    m.weight_bytes = model->weight_bytes();
    DQ_TRY(m.compute_bytes, model->measure_decode(1, h, w, tiling));
    on_row_(std::move(m));
    return {};
  }

  std::shared_ptr<Device> device_;
  const ComponentProvider& components_;
  const BenchOptions& o_;
  const std::function<void(Measurement)>& on_row_;
  const std::function<bool()>& cancelled_;
};

}  // namespace

bool is_z_image(const Json* config, const TensorSource* source) {
  if (config && config->is_object())
    return config->value("_class_name", Json()) == "ZImageTransformer2DModel" ||
           config->value("model_type", Json()) == "qwen3";
  const auto kind = source ? recognise(*source) : std::nullopt;
  return kind && kind->pipeline_class == "ZImagePipeline";
}

Result<void> bench_stages(std::shared_ptr<Device> device, const ComponentProvider& components,
                          const BenchOptions& options, const std::function<void(Measurement)>& on_row,
                          const std::function<bool()>& cancelled) {
  return Bench(std::move(device), components, options, on_row, cancelled).run();
}

}  // namespace danqing::app
