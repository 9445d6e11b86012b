// A family without networks: the prediction is known, so the loop around it can be checked exactly.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "pipeline/family.h"

namespace danqing::testing {

class FakeFamily final : public ModelFamily {
 public:
  FakeFamily() {
    info_.name = "fake";
    info_.pipeline_class = "FakePipeline";
    info_.defaults.width = info_.defaults.height = 32;
    info_.defaults.num_inference_steps = 4;
    info_.defaults.guidance_scale = 4.0f;
    info_.has_prompt_enhancer = true;
    scheduler_.shift = 3.0;
  }
  const ModelInfo& info() const override { return info_; }
  WorkType latent_type() const override { return type; }
  WorkType decode_type() const override { return type; }
  SigmaSpacing sigma_spacing() const override { return SigmaSpacing::one_to_zero; }
  const FlowMatchConfig& scheduler() const override { return scheduler_; }
  Shape latent_shape(int width, int height) const override { return {8, height / 16, width / 16}; }
  int64_t image_seq_len(int width, int height) const override {
    return static_cast<int64_t>(width / 16) * (height / 16);
  }
  bool guidance_active(float g) const override { return g > 1.0f; }

  ComponentSlot* slot(memory::Part) override { return nullptr; }
  Result<uint64_t> compute_bytes(memory::Part, const WeightPolicy&, const Workload&, int) override {
    return uint64_t{0};
  }
  Result<int64_t> count_tokens(const std::string& prompt) override { return static_cast<int64_t>(prompt.size()); }
  int vae_scale() const override { return 16; }
  Result<TileCost> vae_tile_cost(int, int, int, bool) override { return TileCost(); }

  bool takes_image() const override { return with_encoder; }
  /// The mean of each 16x16 pixels in all channels, known for sure.
  Result<EncodedImage> encode_image(const Tensor& picture, const StageControl&) override {
    ++encoded_images;
    const int64_t h = picture.size(2) / 16, w = picture.size(3) / 16;
    EncodedImage e{Tensor({1, 8, h, w}), Tensor({1, 8, h, w})};
    for (size_t i = 0; i < e.mean.data.size(); ++i) e.mean.data[i] = picture.data[0];
    return e;
  }
  Result<Tensor> image_latents(const EncodedImage& image, const NoiseDraw& draw) override {
    if (samples) {
      std::vector<float> some(image.mean.data.size());
      draw(some, WorkType::f32);
    }
    return image.mean;
  }

  Result<Tensor> encode_prompt(const std::string& prompt, const StageControl&) override {
    ++encoded[prompt];
    return Tensor({1, 1}, {static_cast<float>(prompt.size())});
  }
  /// Prediction = latents - mean feature / 100: latents flow towards a value that the prompt decides.
  Result<Tensor> predict(const Tensor& latents, float, std::span<const Tensor> cond, std::span<const Tensor> uncond,
                         const Guidance& guidance, const StageControl& control) override {
    ++predictions;
    batches.push_back(latents.size(0));
    if (control.cancelled && control.cancelled()) return Error{ErrorCode::cancelled, "[fake] stopped"};
    if (predictions == fail_at) return Error{ErrorCode::device_lost, "[fake] device lost"};
    Tensor out = latents;
    const int64_t one = latents.count() / latents.size(0);
    for (int64_t b = 0; b < latents.size(0); ++b) {
      const auto i = static_cast<size_t>(b);
      float target = cond[i].data[0] / 100;
      if (!uncond.empty()) target = uncond[i].data[0] / 100 + guidance.scale * (target - uncond[i].data[0] / 100);
      for (int64_t k = 0; k < one; ++k) out.data[static_cast<size_t>(b * one + k)] -= target;
    }
    if (predictions == nan_at) {
      out.data[0] = std::numeric_limits<float>::quiet_NaN();
      nan_at += 1;  // so that a second look finds it again
      if (control.taps) control.taps("layers.0", latents), control.taps("layers.1", out), control.taps("layers.2", out);
    }
    return out;
  }
  Result<Tensor> decode(const Tensor& latents, const StageControl&) override {
    Tensor out({1, 3, latents.size(2) * 16, latents.size(3) * 16});
    for (size_t i = 0; i < out.data.size(); ++i) out.data[i] = latents.data[i % latents.data.size()] / 4;
    return out;
  }
  Result<EnhanceResult> enhance(std::string_view prompt, const EnhanceOptions& options, const StageControl&,
                                const std::function<void(int, int, const std::string&)>& on_text) override {
    enhancer_seeds.push_back(options.seed.value_or(999));
    EnhanceResult r;
    r.text = enhancer_is_mute ? "" : std::string(prompt) + ", in detail";
    r.reached_limit = enhancer_hits_limit;
    if (on_text) on_text(1, options.max_new_tokens, r.text);
    return r;
  }

  WorkType type = WorkType::f32;
  int predictions = 0, fail_at = -1, nan_at = -1;
  bool with_encoder = true, samples = false;  ///< of the VAE
  int encoded_images = 0;
  bool enhancer_is_mute = false, enhancer_hits_limit = false;
  std::map<std::string, int> encoded;
  std::vector<int64_t> batches;
  std::vector<uint64_t> enhancer_seeds;
  ModelInfo info_;

 private:
  FlowMatchConfig scheduler_;
};

}  // namespace danqing::testing
