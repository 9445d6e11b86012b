// What a model family supplies so that one generation loop serves all: text features, one guided prediction, decoding.
// Role: owns the components and their lifetimes (loaded when first needed, kept). Owner: the Engine.
// Thread rule: one call at a time (the Engine holds the lock).
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/tensor.h"
#include "checkpoint/checkpoint.h"
#include "danqing/engine.h"
#include "device/weights.h"
#include "sampling/flow_match.h"

namespace danqing {

/// Everything a family gets when it is made.
struct FamilyContext {
  std::shared_ptr<Device> device;
  Checkpoint checkpoint;
  ComputeType compute_type = ComputeType::f32;  ///< resolved, never automatic
};

/// How the caller follows loading and stops a computation.
struct StageControl {
  LoadProgress on_load;
  std::function<bool()> cancelled;
  TapSink taps;
  std::function<void(const std::string&)> note;  ///< something the user should know (a prompt that was cut)
};

/// How strongly the prompt steers.
struct Guidance {
  float scale = 0;
  float normalization = 0;  ///< see GenerateRequest::cfg_normalization
  float truncation = 1;     ///< see GenerateRequest::cfg_truncation
};

class ModelFamily {
 public:
  virtual ~ModelFamily() = default;

  virtual const ModelInfo& info() const = 0;
  /// Rounding rules that noise, guidance and steps follow.
  virtual WorkType latent_type() const = 0;
  virtual WorkType decode_type() const = 0;
  virtual SigmaSpacing sigma_spacing() const = 0;
  virtual const FlowMatchConfig& scheduler() const = 0;
  /// Channels, rows and columns of one picture's latents.
  virtual Shape latent_shape(int width, int height) const = 0;
  /// Number of image tokens, for dynamic shifting.
  virtual int64_t image_seq_len(int width, int height) const = 0;
  virtual bool guidance_active(float guidance_scale) const = 0;
  virtual bool limits_guidance() const { return false; }  ///< heeds normalization and truncation
  virtual int min_steps() const { return 0; }             ///< with 0, no steps decode the noise

  /// Features of one prompt [T, width]; the same text gives the same features (cached by the caller).
  virtual Result<Tensor> encode_prompt(const std::string& prompt, const StageControl& control) = 0;
  /// Guided prediction. latents [B, C, h, w]; cond and uncond hold B features each, uncond is empty without guidance.
  virtual Result<Tensor> predict(const Tensor& latents, float sigma, std::span<const Tensor> cond,
                                 std::span<const Tensor> uncond, const Guidance& guidance, const StageControl& control) = 0;
  /// Latents [1, C, h, w] as the VAE's decoder takes them [1, channels, H/8, W/8], for previews. An empty tensor: this
  /// family has none. May load the VAE.
  virtual Result<Tensor> vae_latents(const Tensor& latents, const StageControl& control) {
    (void)latents, (void)control;
    return Tensor({0});
  }
  /// Latents [1, C, h, w] to a picture [1, 3, H, W] in about -1..1.
  virtual Result<Tensor> decode(const Tensor& latents, const StageControl& control) = 0;

  /// The prompt enhancer; usage error when the model has none. `on_text` gets the text as it grows.
  virtual Result<EnhanceResult> enhance(
      std::string_view prompt, const EnhanceOptions& options, const StageControl& control,
      const std::function<void(int done, int cap, const std::string& text)>& on_text) = 0;
};

/// One line a family: the pipeline class of model_index.json and how to make it.
struct FamilyEntry {
  std::string_view pipeline_class;
  Result<std::unique_ptr<ModelFamily>> (*make)(FamilyContext context);
};
std::span<const FamilyEntry> families();

/// The policy for a component: f32 widens everything; bf16 and f16 convert plain weights and keep quantised ones.
WeightPolicy weight_policy(const ComponentFiles& files, ComputeType type);
/// Resolves `automatic` from the checkpoint's dtypes and the device's memory.
ComputeType resolve_compute_type(ComputeType asked, const Checkpoint& checkpoint, const DeviceInfo& device);
WorkType work_type(ComputeType type);

}  // namespace danqing
