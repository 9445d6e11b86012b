// The whole of Danqing for a program that embeds it: open a model, draw pictures, enhance prompts.
//
//   auto engine = danqing::Engine::open({.paths = {.model = "models/danqing-mini"}});
//   danqing::GenerateRequest request;  request.prompts = {"a red apple"};
//   auto result = (*engine)->generate(request);
//
// Threads: an Engine may be used from any number of threads; calls that compute (generate, enhance) queue for the
// device and run one after another. Callbacks run on the thread that made the call. Different Engines are independent.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "danqing/cpu.h"
#include "danqing/export.h"
#include "danqing/image.h"
#include "danqing/memory.h"
#include "danqing/model.h"
#include "danqing/result.h"

namespace danqing {

/// In which dtype the networks run and whose rounding rules the sampler follows.
/// automatic: f32 where the whole model in f32 takes at most 4 GiB and a quarter of the memory, else the checkpoint's
/// dtype.
enum class ComputeType { automatic, f32, bf16, f16 };

struct EngineOptions {
  ModelPaths paths;
  std::string device = "auto";
  CpuOptions cpu;  ///< how many threads, which kernels
  ComputeType compute_type = ComputeType::automatic;
  MemoryOptions memory;  ///< how much of the device, and how the weights share it
  /// A card is tried before its first use with a driver: held to the CPU's results and timed, some seconds; the result is
  /// kept in $XDG_CACHE_HOME/danqing/tuning.json. "auto" then takes the fastest backend of a card and none that is wrong.
  bool tune = true;
};

enum class Stage { load, enhance, encode_text, encode_image, denoise, decode };
std::string_view DANQING_API name(Stage stage);

struct ProgressEvent {
  Stage stage = Stage::load;
  int step = 0, steps = 0;  ///< denoise: steps done and in all; load: per mille of bytes; enhance: tokens done and cap
  int image = 0, images = 0;    ///< first picture of the current group (from 0), and how many the call makes
  double seconds_per_step = 0;  ///< measured so far, 0 before the first step is done
  std::string text;             ///< enhance: the text added by this token
};

enum class EnhancerMode { automatic, on, off };

struct EnhanceOptions {
  float temperature = 0.6f;  ///< 0 = always the most likely token
  float top_p = 0.95f;
  int top_k = 50;
  std::optional<uint64_t> seed;  ///< empty: the first picture's seed within generate, 0 for enhance
  int max_new_tokens = 512;      ///< the model's own limit may be astronomically large
  int width = 0, height = 0;     ///< told to the enhancer; 0 = the model's default size
};

struct GenerateRequest {
  std::vector<std::string> prompts;           ///< at least one; an empty string is a prompt
  std::vector<std::string> negative_prompts;  ///< none (= empty string), one for all, or one a prompt
  int width = 0, height = 0;                  ///< pixels, multiples of ModelInfo::size_multiple; 0 = default
  std::optional<int> num_inference_steps;     ///< 0 is allowed: decodes the noise
  std::optional<float> guidance_scale;        ///< active above 1 (ERNIE-Image) or above 0 (Z-Image)
  /// Z-Image only. A guided prediction is scaled down to at most this many times the unguided one's norm; 0 = off.
  std::optional<float> cfg_normalization;
  /// Z-Image only, 0 to 1. Steps run without guidance from where 1 - sigma exceeds this; 1 = never.
  std::optional<float> cfg_truncation;
  std::optional<float> shift;     ///< overrides the scheduler's
  std::string sampler = "euler";  ///< "euler" (as diffusers) or "heun"
  int images_per_prompt = 1;      ///< pictures of one prompt are neighbours: p0 p0 p1 p1
  std::vector<uint64_t> seeds;    ///< one: picture i gets seed + i; else one a picture; empty = random
  bool one_stream = false;        ///< one generator draws the noise of all pictures (diffusers with one generator)
  bool cuda_noise = false;        ///< noise as a CUDA generator draws it
  int batch_size = 0;             ///< pictures denoised together; 0 = chosen by the device
  EnhancerMode enhancer = EnhancerMode::automatic;
  EnhanceOptions enhance;
  /// Already enhanced prompts, one a prompt: drawn in place of `prompts` and recorded as the enhancer's work, which
  /// then does not run. Empty = none.
  std::vector<std::string> revised_prompts;
  /// Start noise instead of seeds: [B, 128, H/16, W/16] (Z-Image: [B, 16, H/8, W/8]) f32, row-major. Empty = drawn.
  std::vector<float> latents;
  /// A picture to start from (image to image); empty = from noise. It is scaled to the asked size; without one, its own
  /// size counts, each side cut to the model's multiple.
  Image init_image;
  /// With init_image, above 0 to 1: how much is drawn anew. The run enters the schedule where this share of its steps
  /// is left; 1 starts from noise alone.
  double strength = 0.6;
};

struct GeneratedImage {
  Image image;
  int index = 0;
  uint64_t seed = 0;
  std::string prompt, revised_prompt;  ///< as given, and as the enhancer wrote it (equal to prompt when it did not run)
  std::string negative_prompt;
  ImageMetadata metadata;  ///< "parameters" (A1111 style) and "danqing" (JSON), ready for encode_image
};

struct GenerateResult {
  std::vector<GeneratedImage> images;
  std::vector<std::string> notes;  ///< what was ignored or changed, one sentence each
  double seconds_total = 0, seconds_load = 0, seconds_enhance = 0, seconds_text = 0, seconds_denoise = 0,
         seconds_decode = 0;
  double seconds_per_step = 0;  ///< median over the steps
  int width = 0, height = 0, num_inference_steps = 0;
  float guidance_scale = 0, shift = 0;
  MemoryPlan plan;           ///< what was chosen, with the true numbers of tokens
  uint64_t device_peak = 0;  ///< bytes that were in use at most, to hold against plan.device_peak
};

/// Named intermediates of a run, for parity checks: f32, row-major, torch order.
using DumpSink =
    std::function<void(const std::string& name, const std::vector<int64_t>& shape, const std::vector<float>& data)>;

/// How the caller follows and stops a run. All optional; called on the calling thread.
struct RunControl {
  std::function<void(const ProgressEvent&)> on_progress;
  std::function<bool()> cancelled;                      ///< polled within a step; true stops with ErrorCode::cancelled
  std::function<void(const GeneratedImage&)> on_image;  ///< each picture as soon as it is decoded
  /// A small rough picture (one pixel a latent, so an eighth of each side) of what the step is heading for, for each
  /// picture of the group. Made only where wants_preview(step) is true; steps count from 0.
  std::function<void(int image, int step, const Image&)> on_preview;
  std::function<bool(int step)> wants_preview;  ///< empty = always, if there is on_preview
  DumpSink dump;
};

struct EnhanceResult {
  std::string text;
  int prompt_tokens = 0, new_tokens = 0;
  bool reached_limit = false;
  double seconds = 0;
};

/// Where an Engine computes, as it is now.
struct DeviceStatus {
  std::string name, description;  ///< "cpu", the processor's or card's name
  bool is_cpu = true;
  uint64_t memory_total = 0, memory_free = 0;  ///< bytes; the host's for the CPU
  uint64_t allocated = 0, peak_allocated = 0;  ///< bytes taken by this Engine
};

class DANQING_API Engine {
 public:
  /// Reads headers and configs; weights are loaded when first needed. Errors: bad_input, usage (unknown device),
  /// does_not_fit.
  static Result<std::unique_ptr<Engine>> open(const EngineOptions& options);
  virtual ~Engine() = default;

  virtual const ModelInfo& info() const = 0;
  /// Never waits for a computation.
  virtual DeviceStatus device() const = 0;
  /// Checks a request without computing: the first thing wrong with it as a usage Error.
  virtual Result<void> check(const GenerateRequest& request) const = 0;
  /// How the request would run, from headers alone: never waits for a computation. With the enhancer on, its texts are
  /// taken to be as long as they may become. Errors: usage, does_not_fit (by how much, and what would help).
  /// text_tokens: assume texts of this length instead of counting the prompts' tokens; 0 = count.
  virtual Result<MemoryPlan> plan(const GenerateRequest& request, int text_tokens = 0) = 0;
  virtual Result<GenerateResult> generate(const GenerateRequest& request, const RunControl& control = {}) = 0;
  virtual Result<EnhanceResult> enhance(std::string_view prompt, const EnhanceOptions& options,
                                        const RunControl& control = {}) = 0;
};

/// "0.1.0"
DANQING_API std::string_view version();
/// The model that is installed with the program: $DANQING_MODEL, or danqing-mini beside the executable, the install
/// prefix or the source tree. Error bad_input lists where it was looked for.
DANQING_API Result<std::filesystem::path> default_model();

}  // namespace danqing
