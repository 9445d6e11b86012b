#include "pipeline/ernie_image_family.h"

#include <algorithm>

#include "base/text.h"
#include "base/try.h"
#include "models/ernie_image/transformer.h"
#include "models/mistral3/model.h"
#include "pipeline/defaults.h"
#include "pipeline/prompt_enhancer.h"
#include "pipeline/standard_family.h"
#include "text/tokenizer.h"

namespace danqing {
namespace {

/// For files that carry no scheduler_config.json: the published one.
FlowMatchConfig published_scheduler() {
  FlowMatchConfig c;
  c.shift = 4.0;
  return c;
}

ModelDefaults kind_defaults(const Checkpoint& checkpoint) {
  const bool turbo = named_turbo(checkpoint);
  ModelDefaults d;
  d.num_inference_steps = turbo ? 8 : 50;
  d.guidance_scale = turbo ? 1.0f : 4.0f;
  d.prompt_enhancer = checkpoint.find("pe") != nullptr;  // the reference pipeline's use_pe is on by default
  d.suggested_sizes = {{1024, 1024}, {848, 1264}, {1264, 848}, {768, 1376}, {1376, 768}, {896, 1200}, {1200, 896}};
  d.source = turbo ? "ERNIE-Image-Turbo" : "ERNIE-Image";
  return d;
}

class ErnieImageFamily final : public StandardFamily {
 public:
  explicit ErnieImageFamily(FamilyContext context) : StandardFamily(std::move(context)) {}

  /// Reads configs and tokenizers; no weights.
  Result<void> open() {
    const std::string where = ctx_.checkpoint.root.empty() ? "the given files" : ctx_.checkpoint.root.string();
    for (const char* role : {"transformer", "text_encoder", "vae"})
      if (!ctx_.checkpoint.find(role))
        return bad_input("[model] {}: ERNIE-Image needs a {}; give a complete directory or --{}", where, role,
                         role == std::string_view("text_encoder") ? "text-encoder" : role);
    if (ctx_.checkpoint.tokenizer.empty())
      return bad_input("[model] {}: no tokenizer found; give a directory with tokenizer.json by --tokenizer", where);
    const ComponentFiles& t = *ctx_.checkpoint.find("transformer");
    DQ_TRY(transformer_config_,
           t.config ? ernie_image::Config::parse(*t.config, t.path.string()) : ernie_image::Config::infer(*t.source));
    const ComponentFiles& e = *ctx_.checkpoint.find("text_encoder");
    DQ_TRY(const mistral3::Config text_config,
           e.config ? mistral3::Config::parse(*e.config, e.path.string()) : mistral3::Config::infer(*e.source));
    if (text_config.hidden_size != transformer_config_.text_in_dim)
      return bad_input("[model] {}: the transformer expects text features of width {}, the text encoder {} makes {}",
                       t.path.string(), transformer_config_.text_in_dim, e.path.string(), text_config.hidden_size);
    const ComponentFiles& v = *ctx_.checkpoint.find("vae");
    DQ_TRY(vae_config_, v.config ? vae::Config::parse(*v.config, v.path.string()) : vae::Config::infer(*v.source));
    const int64_t patch = vae_config_.patch_size[0] * vae_config_.patch_size[1];
    if (transformer_config_.in_channels != vae_config_.latent_channels * patch)
      return bad_input("[model] {}: the transformer expects {} latent channels, the VAE makes {} x {}", where,
                       transformer_config_.in_channels, vae_config_.latent_channels, patch);
    DQ_TRY(scheduler_, ctx_.checkpoint.scheduler
                           ? FlowMatchConfig::parse(*ctx_.checkpoint.scheduler, "scheduler_config.json")
                           : Result<FlowMatchConfig>(published_scheduler()));
    pixels_per_latent_ = vae_config_.scale() * vae_config_.patch_size[0];
    DQ_TRY(info_, describe_model(ctx_.checkpoint, scheduler_, kind_defaults(ctx_.checkpoint)));
    info_.size_multiple = static_cast<int>(pixels_per_latent_);
    if (info_.has_prompt_enhancer && ctx_.checkpoint.pe_tokenizer.empty()) info_.has_prompt_enhancer = false;
    DQ_TRY(tokenizer_, Tokenizer::load(ctx_.checkpoint.tokenizer));
    text_encoder_ = slot_of<mistral3::TextEncoder>("text_encoder", mistral3::TextEncoder::load);
    transformer_ = slot_of<ernie_image::Transformer>("transformer", ernie_image::Transformer::load);
    DQ_CHECK(check_adapters(transformer_));
    open_vae();
    if (info_.has_prompt_enhancer)
      enhancer_ = slot_of<PromptEnhancer>(
          "pe", [tokenizer = ctx_.checkpoint.pe_tokenizer](std::shared_ptr<Device> device, const ComponentFiles& files,
                                                           const WeightPolicy& policy, const LoadProgress& progress) {
            return PromptEnhancer::load(std::move(device), files, tokenizer, policy, progress);
          });
    return {};
  }

  WorkType latent_type() const override { return work_type(ctx_.compute_type); }
  SigmaSpacing sigma_spacing() const override { return SigmaSpacing::one_to_zero; }
  Shape latent_shape(int width, int height) const override {
    return {transformer_config_.in_channels, height / pixels_per_latent_, width / pixels_per_latent_};
  }
  int64_t image_seq_len(int width, int height) const override {
    return (height / pixels_per_latent_) * (width / pixels_per_latent_);
  }
  bool guidance_active(float guidance_scale) const override { return guidance_scale > 1.0f; }

  ComponentSlot* slot(memory::Part part) override {
    if (part == memory::Part::enhancer) return info_.has_prompt_enhancer ? &enhancer_ : nullptr;
    return part == memory::Part::transformer ? &transformer_ : StandardFamily::slot(part);
  }

  Result<uint64_t> compute_bytes(memory::Part part, const WeightPolicy& policy, const Workload& work,
                                 int vae_tile) override {
    if (part == memory::Part::enhancer) {
      DQ_TRY(PromptEnhancer * e, enhancer_.described(policy));
      return e->measure(work.enhancer_prompt, work.enhancer_new);
    }
    if (part != memory::Part::transformer) return StandardFamily::compute_bytes(part, policy, work, vae_tile);
    DQ_TRY(ernie_image::Transformer * t, transformer_.described(policy));
    std::vector<int64_t> lengths = work.negative_tokens;
    lengths.insert(lengths.end(), work.text_tokens.begin(), work.text_tokens.end());
    return t->measure(static_cast<int64_t>(lengths.size()), work.height / pixels_per_latent_,
                      work.width / pixels_per_latent_, lengths);
  }

  Result<int64_t> count_tokens(const std::string& prompt) override {
    DQ_TRY(const TokenIds ids, tokens(prompt, {}));
    return static_cast<int64_t>(ids.size());
  }
  Result<int64_t> count_enhancer_tokens(const std::string& prompt, int width, int height) override {
    if (!info_.has_prompt_enhancer) return int64_t{0};
    DQ_TRY(const PromptEnhancer* e, enhancer_.described(enhancer_.policy()));
    DQ_TRY(const std::vector<int32_t> ids, e->prompt_ids(prompt, width, height));
    return static_cast<int64_t>(ids.size());
  }

  Result<Tensor> encode_prompt(const std::string& prompt, const StageControl& control) override {
    DQ_TRY(mistral3::TextEncoder * encoder, text_encoder_.get(control.on_load));
    DQ_TRY(const TokenIds ids, tokens(prompt, control));
    return encoder->encode(ids, control.taps);
  }

  Result<Tensor> predict(const Tensor& latents, float sigma, std::span<const Tensor> cond,
                         std::span<const Tensor> uncond, const Guidance& guidance,
                         const StageControl& control) override {
    DQ_TRY(ernie_image::Transformer * transformer, transformer_.get(control.on_load));
    const WorkType type = latent_type();
    const float timestep = timestep_as(static_cast<float>(scheduler_.num_train_timesteps) * sigma, type);
    if (uncond.empty()) {
      const std::vector<float> timesteps(cond.size(), timestep);
      DQ_TRY(Tensor out, transformer->forward(latents, cond, timesteps, control.taps, control.cancelled));
      if (control.taps) control.taps("model_out", out);
      return out;
    }
    // Unconditional half first, as the pipeline stacks them.
    std::vector<Tensor> text(uncond.begin(), uncond.end());
    text.insert(text.end(), cond.begin(), cond.end());
    const std::vector<float> timesteps(text.size(), timestep);
    DQ_TRY(Tensor doubled, concat({latents, latents}));
    DQ_TRY(Tensor out, transformer->forward(doubled, text, timesteps, control.taps, control.cancelled));
    if (control.taps) control.taps("model_out", out);
    Tensor guided(latents.shape);
    const auto half = static_cast<size_t>(latents.count());
    const std::span<const float> all(out.data);
    guide(all.first(half), all.last(half), guidance.scale, guided.data, type);
    return guided;
  }

  Result<Tensor> vae_latents(const Tensor& latents, const StageControl&) override {
    DQ_TRY(const vae::Vae* v, vae_.described(vae_.policy()));  // its statistics are all that is needed
    const Tensor scaled = vae_config_.has_batch_norm
                              ? vae::denormalise(latents, v->bn_mean(), v->bn_std(), latent_type() == WorkType::bf16)
                              : latents;
    return vae::unpatchify(scaled, vae_config_.patch_size);
  }

  /// The distribution's mean, as diffusers' pipelines take it from this VAE; nothing is drawn.
  Result<Tensor> image_latents(const EncodedImage& image, const NoiseDraw&) override {
    DQ_TRY(const vae::Vae* v, vae_.described(vae_.policy()));
    const Tensor packed = vae::patchify(image.mean, vae_config_.patch_size);
    Tensor z = vae_config_.has_batch_norm ? vae::normalise(packed, v->bn_mean(), v->bn_std()) : packed;
    for (float& x : z.data) x = round_to(x, latent_type());
    return z;
  }

  Result<EnhanceResult> enhance(std::string_view prompt, const EnhanceOptions& options, const StageControl& control,
                                const std::function<void(int, int, const std::string&)>& on_text) override {
    if (!info_.has_prompt_enhancer)
      return usage_error("[enhance] {}: this model has no prompt enhancer (no pe and pe_tokenizer)", info_.name);
    DQ_TRY(PromptEnhancer * enhancer, enhancer_.get(control.on_load));
    EnhanceOptions sized = options;
    if (sized.width == 0) sized.width = info_.defaults.width;
    if (sized.height == 0) sized.height = info_.defaults.height;
    return enhancer->run(prompt, sized, control.cancelled, on_text);
  }

 private:
  Result<TokenIds> tokens(const std::string& prompt, const StageControl& control) const {
    DQ_TRY(TokenIds ids, tokenizer_->encode(prompt, true));
    if (const auto limit = tokenizer_->model_max_length(); limit && static_cast<int64_t>(ids.size()) > *limit) {
      if (control.note)
        control.note(fmt::format("the prompt '{}' has {} tokens and was cut to the model's {}", one_line(prompt, 40),
                                 ids.size(), *limit));
      DQ_TRY(ids, tokenizer_->encode(prompt, true, true));
    }
    if (ids.empty()) ids = {tokenizer_->bos_id().value_or(0)};  // the pipeline's rule for an empty tokenisation
    return ids;
  }

  ernie_image::Config transformer_config_;
  int64_t pixels_per_latent_ = 16;
  std::shared_ptr<const Tokenizer> tokenizer_;
  Slot<ernie_image::Transformer> transformer_;
  Slot<PromptEnhancer> enhancer_;
};

}  // namespace

Result<std::unique_ptr<ModelFamily>> make_ernie_image_family(FamilyContext context) {
  auto family = std::make_unique<ErnieImageFamily>(std::move(context));
  DQ_CHECK(family->open());
  return std::unique_ptr<ModelFamily>(std::move(family));
}

}  // namespace danqing
