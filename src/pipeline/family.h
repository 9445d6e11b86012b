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
#include "memory/needs.h"
#include "pipeline/component_slot.h"
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

/// What the networks are asked for, for measuring.
struct Workload {
  int width = 0, height = 0;             ///< pixels
  std::vector<int64_t> text_tokens;      ///< of the pictures that are denoised together
  std::vector<int64_t> negative_tokens;  ///< the same; empty without guidance
  int64_t enhancer_prompt = 0, enhancer_new = 0;
};

/// Of all texts; 1 when there is none.
int64_t longest(const Workload& work);

/// What a VAE says of a picture: a normal distribution for each latent, [1, channels, H/8, W/8].
struct EncodedImage {
  Tensor mean, logvar;
};
/// Fills with standard normal values from a picture's generator, rounded to the working dtype.
using NoiseDraw = std::function<void(std::span<float>, WorkType)>;

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

  /// The network of a part; null where the model has none.
  virtual ComponentSlot* slot(memory::Part part) = 0;
  /// Exact bytes on the device beyond the weights, at most, while the part does its work; allocates nothing.
  virtual Result<uint64_t> compute_bytes(memory::Part part, const WeightPolicy& policy, const Workload& work,
                                         int vae_tile) = 0;
  virtual int vae_scale() const = 0;  ///< pixels for each of the VAE's latents
  /// What a decode in tiles of that side (or an encode before it) takes of the host, and how much it computes for each
  /// operation of a whole one.
  struct TileCost {
    size_t host_bytes = 0;
    double repeated_work = 1;
  };
  virtual Result<TileCost> vae_tile_cost(int width, int height, int vae_tile, bool also_encodes) = 0;
  /// Host memory for what a decode in tiles keeps between its passes; what does not fit is computed again.
  void set_vae_host_memory(uint64_t bytes) { vae_host_memory_ = bytes; }
  void set_vae_tile(int side) { vae_tile_ = side; }  ///< in latents; 0 = the picture in one piece
  /// Tokens that a prompt has for the text encoder, and an enhancer's prompt for its model.
  virtual Result<int64_t> count_tokens(const std::string& prompt) = 0;
  virtual Result<int64_t> count_enhancer_tokens(const std::string& prompt, int width, int height) {
    (void)prompt, (void)width, (void)height;
    return 0;
  }

  /// Features of one prompt [T, width]; the same text gives the same features (cached by the caller).
  virtual Result<Tensor> encode_prompt(const std::string& prompt, const StageControl& control) = 0;
  /// Guided prediction. latents [B, C, h, w]; cond and uncond hold B features each, uncond is empty without guidance.
  virtual Result<Tensor> predict(const Tensor& latents, float sigma, std::span<const Tensor> cond,
                                 std::span<const Tensor> uncond, const Guidance& guidance,
                                 const StageControl& control) = 0;
  /// Latents [1, C, h, w] as the VAE's decoder takes them [1, channels, H/8, W/8], for previews. An empty tensor: this
  /// family has none. May load the VAE.
  virtual Result<Tensor> vae_latents(const Tensor& latents, const StageControl& control) {
    (void)latents, (void)control;
    return Tensor({0});
  }
  /// Latents [1, C, h, w] to a picture [1, 3, H, W] in about -1..1.
  virtual Result<Tensor> decode(const Tensor& latents, const StageControl& control) = 0;

  virtual bool takes_image() const { return false; }  ///< a run may start from a picture
  /// A picture [1, 3, H, W] in -1..1, H and W multiples of ModelInfo::size_multiple.
  virtual Result<EncodedImage> encode_image(const Tensor& picture, const StageControl& control) = 0;
  /// Latents of an encoded picture as the denoiser's loop holds them [1, C, h, w]. `draw`, where the family samples
  /// from the distribution, is called before the noise is drawn.
  virtual Result<Tensor> image_latents(const EncodedImage& image, const NoiseDraw& draw) = 0;

  /// The prompt enhancer; usage error when the model has none. `on_text` gets the text as it grows.
  virtual Result<EnhanceResult> enhance(
      std::string_view prompt, const EnhanceOptions& options, const StageControl& control,
      const std::function<void(int done, int cap, const std::string& text)>& on_text) = 0;

 protected:
  int vae_tile_ = 0;
  uint64_t vae_host_memory_ = uint64_t{768} << 20;
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
