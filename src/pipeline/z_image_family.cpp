#include "pipeline/z_image_family.h"

#include <algorithm>

#include "base/text.h"
#include "base/try.h"
#include "models/qwen3/qwen3.h"
#include "models/vae/vae.h"
#include "models/z_image/transformer.h"
#include "pipeline/defaults.h"

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

class ZImageFamily final : public ModelFamily {
 public:
  explicit ZImageFamily(FamilyContext context) : ctx_(std::move(context)) {}

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
    make_slots();
    return {};
  }

  const ModelInfo& info() const override { return info_; }
  WorkType latent_type() const override { return WorkType::f32; }  // whatever the networks compute in
  WorkType decode_type() const override { return work_type(ctx_.compute_type); }
  SigmaSpacing sigma_spacing() const override { return SigmaSpacing::one_to_inverse_n; }
  const FlowMatchConfig& scheduler() const override { return scheduler_; }
  Shape latent_shape(int width, int height) const override {
    return {transformer_config_.in_channels, height / vae_config_.scale(), width / vae_config_.scale()};
  }
  int64_t image_seq_len(int width, int height) const override {
    return (height / info_.size_multiple) * (width / info_.size_multiple);
  }
  bool guidance_active(float guidance_scale) const override { return guidance_scale > 0.0f; }
  bool limits_guidance() const override { return true; }
  int min_steps() const override { return 1; }  // sigmas from 1 down to 1/steps

  int vae_scale() const override { return static_cast<int>(vae_config_.scale()); }
  Result<TileCost> vae_tile_cost(int width, int height, int vae_tile) override {
    DQ_TRY(vae::Vae * v, vae_.described(vae_.base_policy()));
    const int64_t h = height / vae_config_.scale(), w = width / vae_config_.scale();
    TileCost cost;
    DQ_TRY(cost.host_bytes, v->host_bytes_decode(h, w, tiling(vae_tile)));
    DQ_TRY(cost.repeated_work, v->repeated_work(h, w, tiling(vae_tile)));
    return cost;
  }
  ComponentSlot* slot(memory::Part part) override {
    switch (part) {
      case memory::Part::enhancer: break;
      case memory::Part::text_encoder: return &text_encoder_;
      case memory::Part::transformer: return &transformer_;
      case memory::Part::vae: return &vae_;
    }
    return nullptr;
  }

  Result<uint64_t> compute_bytes(memory::Part part, const WeightPolicy& policy, const Workload& work,
                                 int vae_tile) override {
    const int64_t h = work.height / vae_config_.scale(), w = work.width / vae_config_.scale();
    switch (part) {
      case memory::Part::enhancer: break;
      case memory::Part::text_encoder: {
        DQ_TRY(qwen3::TextEncoder * e, text_encoder_.described(policy));
        return e->measure(1, longest(work));
      }
      case memory::Part::transformer: {
        DQ_TRY(z_image::Transformer * t, transformer_.described(policy));
        std::vector<int64_t> lengths = work.text_tokens;
        lengths.insert(lengths.end(), work.negative_tokens.begin(), work.negative_tokens.end());
        return t->measure(h, w, lengths);
      }
      case memory::Part::vae: {
        DQ_TRY(vae::Vae * v, vae_.described(policy));
        return v->measure_decode(1, h, w, tiling(vae_tile));
      }
    }
    return uint64_t{0};
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

  Result<Tensor> decode(const Tensor& latents, const StageControl& control) override {
    DQ_TRY(const Tensor z, vae_latents(latents, control));
    if (control.taps) control.taps("vae_input", z);
    DQ_TRY(vae::Vae * v, vae_.get(control.on_load));
    return v->decode(z, tiling(vae_tile_), control.taps, control.cancelled, control.on_tile);
  }

  Result<EnhanceResult> enhance(std::string_view, const EnhanceOptions&, const StageControl&,
                                const std::function<void(int, int, const std::string&)>&) override {
    return usage_error("[enhance] {}: Z-Image has no prompt enhancer", info_.name);
  }

 private:
  vae::Tiling tiling(int side) const { return {side, vae_host_memory_}; }

  void make_slots() {
    const auto policy = [&](const ComponentFiles& f) { return weight_policy(f, ctx_.compute_type); };
    const auto& device = ctx_.device;
    const ComponentFiles &text = *ctx_.checkpoint.find("text_encoder"), &dit = *ctx_.checkpoint.find("transformer"),
                         &vae = *ctx_.checkpoint.find("vae");
    text_encoder_ = {text, policy(text),
                     [device](const ComponentFiles& f, const WeightPolicy& p, const LoadProgress& l) {
                       return qwen3::load_text_encoder(device, f, p, l);
                     }};
    transformer_ = {dit, policy(dit), [device](const ComponentFiles& f, const WeightPolicy& p, const LoadProgress& l) {
                      return z_image::Transformer::load(device, f, p, l);
                    }};
    vae_ = {vae, policy(vae), [device](const ComponentFiles& f, const WeightPolicy& p, const LoadProgress& l) {
              return vae::Vae::load(device, f, vae::Part::decoder, p, l);
            }};
  }

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

  FamilyContext ctx_;
  ModelInfo info_;
  z_image::Config transformer_config_;
  vae::Config vae_config_;
  FlowMatchConfig scheduler_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::unique_ptr<ChatTemplate> template_;
  Slot<qwen3::TextEncoder> text_encoder_;
  Slot<z_image::Transformer> transformer_;
  Slot<vae::Vae> vae_;
};

}  // namespace

Result<std::unique_ptr<ModelFamily>> make_z_image_family(FamilyContext context) {
  auto family = std::make_unique<ZImageFamily>(std::move(context));
  DQ_CHECK(family->open());
  return std::unique_ptr<ModelFamily>(std::move(family));
}

}  // namespace danqing
