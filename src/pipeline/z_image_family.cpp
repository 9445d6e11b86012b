#include "pipeline/z_image_family.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "base/try.h"
#include "models/qwen3/qwen3.h"
#include "models/z_image/transformer.h"
#include "pipeline/defaults.h"
#include "pipeline/standard_family.h"

namespace danqing {
namespace {

constexpr double kTurboShift = 3.0, kBaseShift = 6.0;  // of the published scheduler_config.json files

/// The distilled model and the base have the same tensors; the name or the scheduler tells.
bool is_turbo(const Checkpoint& checkpoint, const std::optional<FlowMatchConfig>& scheduler) {
  return named_turbo(checkpoint) || (scheduler && !scheduler->use_dynamic_shifting && scheduler->shift == kTurboShift);
}

ModelDefaults kind_defaults(bool turbo) {
  ModelDefaults d;
  d.num_inference_steps = turbo ? 9 : 50;
  d.guidance_scale = turbo ? 0.0f : 4.0f;
  d.source = turbo ? "Z-Image-Turbo" : "Z-Image";
  return d;
}

class ZImageFamily final : public StandardFamily {
 public:
  explicit ZImageFamily(FamilyContext context) : StandardFamily(std::move(context)) {}

  /// Reads configs and tokenizer; no weights.
  Result<void> open() {
    const std::string where = ctx_.checkpoint.root.empty() ? "the given files" : ctx_.checkpoint.root.string();
    for (const char* role : {"transformer", "text_encoder", "vae"})
      if (!ctx_.checkpoint.find(role))
        return bad_input("[model] {}: Z-Image needs a {}; give a complete directory or --{}", where, role,
                         role == std::string_view("text_encoder") ? "text-encoder" : role);
    if (ctx_.checkpoint.tokenizer.empty())
      return bad_input("[model] {}: no tokenizer found; give a directory with Qwen3's tokenizer.json by --tokenizer",
                       where);
    DQ_CHECK(read_configs(where));
    std::optional<FlowMatchConfig> given;
    if (ctx_.checkpoint.scheduler) {
      DQ_TRY(given, FlowMatchConfig::parse(*ctx_.checkpoint.scheduler, "scheduler_config.json"));
    }
    const bool turbo = is_turbo(ctx_.checkpoint, given);
    scheduler_.shift = turbo ? kTurboShift : kBaseShift;
    if (given) scheduler_ = *given;
    DQ_TRY(info_, describe_model(ctx_.checkpoint, scheduler_, kind_defaults(turbo)));
    info_.has_prompt_enhancer = false;
    const int64_t pixels = vae_config_.scale() * transformer_config_.patch_size;
    info_.size_multiple = static_cast<int>(pixels);
    const std::vector<int64_t>& lens = transformer_config_.axes_lens;
    info_.max_side = static_cast<int>(std::min<int64_t>(info_.max_side, std::min(lens[1], lens[2]) * pixels));
    DQ_TRY(tokenizer_, Tokenizer::load(ctx_.checkpoint.tokenizer));
    DQ_TRY(ChatTemplate chat, z_image_template(ctx_.checkpoint.tokenizer));
    template_ = std::make_unique<ChatTemplate>(std::move(chat));
    text_encoder_ = slot_of<mistral3::TextEncoder>("text_encoder", qwen3::load_text_encoder);
    transformer_ = slot_of<z_image::Transformer>("transformer", z_image::Transformer::load);
    DQ_CHECK(check_adapters(transformer_));
    open_vae();
    return {};
  }

  WorkType latent_type() const override { return WorkType::f32; }  // whatever the networks compute in
  SigmaSpacing sigma_spacing() const override { return SigmaSpacing::one_to_inverse_n; }
  Shape latent_shape(int width, int height) const override {
    return {transformer_config_.in_channels, height / vae_config_.scale(), width / vae_config_.scale()};
  }
  int64_t image_seq_len(int width, int height) const override {
    return (height / info_.size_multiple) * (width / info_.size_multiple);
  }
  bool guidance_active(float guidance_scale) const override { return guidance_scale > 0.0f; }
  bool limits_guidance() const override { return true; }
  int min_steps() const override { return 1; }  // sigmas from 1 down to 1/steps

  ComponentSlot* slot(memory::Part part) override {
    return part == memory::Part::transformer ? &transformer_ : StandardFamily::slot(part);
  }

  Result<uint64_t> compute_bytes(memory::Part part, const WeightPolicy& policy, const Workload& work,
                                 int vae_tile) override {
    if (part != memory::Part::transformer) return StandardFamily::compute_bytes(part, policy, work, vae_tile);
    DQ_TRY(z_image::Transformer * t, transformer_.described(policy));
    std::vector<int64_t> lengths = work.text_tokens;
    lengths.insert(lengths.end(), work.negative_tokens.begin(), work.negative_tokens.end());
    return t->measure(work.height / vae_config_.scale(), work.width / vae_config_.scale(), lengths);
  }

  Result<int64_t> count_tokens(const std::string& prompt) override {
    DQ_TRY(const ZImagePrompt p, z_image_prompt(*tokenizer_, *template_, prompt));
    return static_cast<int64_t>(p.ids.size());
  }

  Result<Tensor> encode_prompt(const std::string& prompt, const StageControl& control) override {
    DQ_TRY(const qwen3::TextEncoder* encoder, text_encoder_.get(control.on_load));
    DQ_TRY(const ZImagePrompt p, z_image_prompt(*tokenizer_, *template_, prompt));
    if (!p.lost.empty() && control.note)
      control.note(fmt::format("the prompt '{}' has {} tokens with its chat template and was cut to {}; lost: '{}'",
                               one_line(prompt, 40), p.ids.size() + p.lost.size(), p.ids.size(),
                               one_line(tokenizer_->decode(p.lost, true), 80)));
    return encoder->encode(p.ids, control.taps);
  }

  Result<Tensor> predict(const Tensor& latents, float sigma, std::span<const Tensor> cond,
                         std::span<const Tensor> uncond, const Guidance& guidance,
                         const StageControl& control) override {
    DQ_TRY(z_image::Transformer * transformer, transformer_.get(control.on_load));
    const auto train = static_cast<float>(scheduler_.num_train_timesteps);
    const float time = (train - train * sigma) / train;  // in this order, for the reference's last bit
    const bool guided = !uncond.empty() && !(time > guidance.truncation);
    std::vector<Tensor> text(cond.begin(), cond.end());  // conditional half first
    if (guided) text.insert(text.end(), uncond.begin(), uncond.end());
    std::vector<Tensor> items;
    for (size_t i = 0; i < text.size(); ++i) items.push_back(item(latents, static_cast<int64_t>(i) % latents.size(0)));
    const std::vector<float> times(text.size(), time);
    DQ_TRY(const std::vector<Tensor> out, transformer->forward(items, text, times, control.taps, control.cancelled));
    const auto stacked = [&](size_t first, size_t n) {
      Tensor t(Shape{static_cast<int64_t>(n), latents.size(1), latents.size(2), latents.size(3)});
      for (size_t i = 0; i < n; ++i)
        std::copy(out[first + i].data.begin(), out[first + i].data.end(),
                  t.data.begin() + static_cast<std::ptrdiff_t>(i * out[first].data.size()));
      return t;
    };
    if (control.taps) {
      control.taps("model_t", Tensor({1}, {time}));
      control.taps("model_out", stacked(0, out.size()));
    }
    Tensor prediction = stacked(0, cond.size());
    if (guided) z_image_guide(stacked(0, cond.size()), stacked(cond.size(), uncond.size()), guidance, prediction);
    for (float& v : prediction.data) v = -v;  // the network's time runs from noise to picture
    return prediction;
  }

  Result<Tensor> vae_latents(const Tensor& latents, const StageControl&) override {
    return vae::unscale(latents, vae_config_, decode_type() == WorkType::bf16);
  }

  /// A sample of the distribution, as ZImageImg2ImgPipeline draws it from the generator that draws the noise next.
  Result<Tensor> image_latents(const EncodedImage& image, const NoiseDraw& draw) override {
    const WorkType type = decode_type();
    std::vector<float> sample(image.mean.data.size());
    draw(sample, type);
    Tensor z = image.mean;
    for (size_t i = 0; i < sample.size(); ++i) {
      const float std = round_to(std::exp(round_to(0.5f * image.logvar.data[i], type)), type);
      z.data[i] = round_to(z.data[i] + round_to(std * sample[i], type), type);
    }
    Tensor scaled = vae::scale(z, vae_config_);
    for (float& x : scaled.data) x = round_to(x, type);
    return scaled;
  }

  Result<EnhanceResult> enhance(std::string_view, const EnhanceOptions&, const StageControl&,
                                const std::function<void(int, int, const std::string&)>&) override {
    return usage_error("[enhance] {}: Z-Image has no prompt enhancer", info_.name);
  }

 private:
  Result<void> read_configs(const std::string& where) {
    const ComponentFiles& t = *ctx_.checkpoint.find("transformer");
    DQ_TRY(transformer_config_,
           t.config ? z_image::Config::parse(*t.config, t.path.string()) : z_image::Config::infer(*t.source));
    const ComponentFiles& e = *ctx_.checkpoint.find("text_encoder");
    DQ_TRY(const mistral3::Architecture text, qwen3::architecture_of(e));
    if (text.config.hidden_size != transformer_config_.cap_feat_dim)
      return bad_input("[model] {}: the transformer expects text features of width {}, the text encoder {} makes {}",
                       t.path.string(), transformer_config_.cap_feat_dim, e.path.string(), text.config.hidden_size);
    const ComponentFiles& v = *ctx_.checkpoint.find("vae");
    DQ_TRY(vae_config_, v.config ? vae::Config::parse(*v.config, v.path.string()) : vae::Config::infer(*v.source));
    if (vae_config_.has_batch_norm || transformer_config_.in_channels != vae_config_.latent_channels)
      return bad_input("[model] {}: the transformer expects an AutoencoderKL with {} latent channels, got {} with {}",
                       where, transformer_config_.in_channels, vae_config_.has_batch_norm ? "FLUX.2's VAE" : "one",
                       vae_config_.latent_channels);
    return {};
  }

  z_image::Config transformer_config_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::unique_ptr<ChatTemplate> template_;
  Slot<z_image::Transformer> transformer_;
};

}  // namespace

Result<std::unique_ptr<ModelFamily>> make_z_image_family(FamilyContext context) {
  auto family = std::make_unique<ZImageFamily>(std::move(context));
  DQ_CHECK(family->open());
  return std::unique_ptr<ModelFamily>(std::move(family));
}

}  // namespace danqing
