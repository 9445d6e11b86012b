#include "danqing/engine.h"

#include <atomic>
#include <exception>
#include <mutex>

#include "base/json.h"
#include "base/log.h"
#include "base/try.h"
#include "pipeline/family.h"
#include "pipeline/generate.h"
#include "pipeline/job_memory.h"
#include "pipeline/metadata.h"
#include "pipeline/preview.h"
#include "pipeline/prompt_enhancer.h"
#include "pipeline/settings.h"
#include "tune/tune.h"

namespace danqing {
namespace {

/// The outermost wall: memory that runs out inside a library becomes an Error, not an abort.
template <class F>
auto guarded(F&& f) -> decltype(f()) {
  try {
    return f();
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::does_not_fit, "[memory] the host ran out of memory; try a smaller size or --dtype bf16");
  } catch (const std::exception& e) {
    return fail(ErrorCode::failed, "[engine] {}", e.what());
  }
}

/// Which device, and how it computes: settled once for the engine and its planner.
struct Choice {
  std::string device;
  bool flash_attention = false;
};

Choice choose_device(const EngineOptions& options) {
  Choice c{options.device};
  if (!options.tune || c.device == "cpu") return c;
  tune::Options o;
  o.software = false;
  o.say = [](const std::string& text) { log::warn("{}", text); };
  std::vector<tune::Tuning> tunings;
  if (c.device == "auto") {
    tunings = tune::tune_all(o);
    if (tunings.empty()) return c;
    std::vector<std::string> said;
    c.device = tune::choose(tunings, said);
    for (const std::string& text : said) log::warn("{}", text);
  } else if (auto one = tune::tuning_of(c.device, o)) {  // an unknown name is refused when it is opened
    if (const std::string why = one->wrong(); !why.empty()) log::warn("{} is used as asked, but {}", c.device, why);
    tunings.push_back(std::move(*one));
  }
  for (const tune::Tuning& t : tunings)
    if (t.device == c.device) c.flash_attention = t.flash_attention;
  return c;
}

Result<std::shared_ptr<Device>> open_device(const EngineOptions& options, const Choice& choice) {
  DQ_TRY(std::shared_ptr<Device> device, Device::open(choice.device, options.cpu));
  device->set_attention_chunk(options.memory.attention_chunk);
  device->set_flash_attention(choice.flash_attention);
  return device;
}

/// The same model once more, without weights: plans while the engine computes.
struct Planner {
  const FamilyEntry* entry = nullptr;
  Checkpoint checkpoint;
  EngineOptions options;
  Choice choice;
  ComputeType compute_type = ComputeType::f32;
  std::shared_ptr<Device> device;
  std::unique_ptr<ModelFamily> family;
  PlanCache cache;

  Result<void> open() {
    DQ_TRY(device, open_device(options, choice));
    DQ_TRY(family, entry->make({device, checkpoint, compute_type}));
    return {};
  }
};

class EngineImpl final : public Engine {
 public:
  EngineImpl(std::shared_ptr<Device> device, std::unique_ptr<ModelFamily> family, ComputeType type,
             LatentPreview preview, const EngineOptions& options, Planner planner)
      : device_(std::move(device)),
        family_(std::move(family)),
        compute_type_(type),
        preview_(std::move(preview)),
        options_(options),
        planner_(std::move(planner)) {}

  const ModelInfo& info() const override { return family_->info(); }

  DeviceStatus device() const override {
    const DeviceInfo& i = device_->info();
    DeviceStatus s{i.name, i.description, device_->is_cpu(), i.memory_total, i.memory_free, 0, 0};
    s.allocated = allocated_;
    s.peak_allocated = peak_;
    return s;
  }

  Result<void> check(const GenerateRequest& request) const override {
    return guarded([&]() -> Result<void> {
      DQ_TRY([[maybe_unused]] const Settings s, resolve(request, *family_, device_->is_cpu()));
      return {};
    });
  }

  Result<MemoryPlan> plan(const GenerateRequest& request, int text_tokens) override {
    return guarded([&]() -> Result<MemoryPlan> {
      const std::lock_guard lock(planner_mutex_);
      if (!planner_.family) {
        DQ_CHECK(planner_.open());
      }
      DQ_TRY(const Settings settings, resolve(request, *planner_.family, device_->is_cpu()));
      const auto& texts = request.revised_prompts.empty() ? request.prompts : request.revised_prompts;
      DQ_TRY(JobShape job, job_shape(*planner_.family, request, settings, texts, false));
      if (text_tokens > 0)
        for (auto* lengths : {&job.text_tokens, &job.negative_tokens})
          std::fill(lengths->begin(), lengths->end(), text_tokens);
      memory::Limits limits = memory_limits(*planner_.device, options_.memory);
      // What this engine holds is there for the job as well.
      if (!options_.memory.device_memory) limits.device_memory += allocated_;
      DQ_TRY(memory::Decision d, plan_job(*planner_.family, limits, options_.memory, job, &planner_.cache));
      return std::move(d.plan);
    });
  }

  Result<GenerateResult> generate(const GenerateRequest& request, const RunControl& control) override {
    return guarded([&]() -> Result<GenerateResult> {
      DQ_TRY(const Settings settings, resolve(request, *family_, device_->is_cpu()));
      const std::lock_guard lock(mutex_);
      auto result = danqing::generate(*family_, cache_, request, settings, control, {device_, options_.memory},
                                      compute_type_, &preview_);
      allocated_ = device_->allocated();  // the device counts for one thread at a time
      peak_ = device_->peak_allocated();
      return result;
    });
  }

  Result<EnhanceResult> enhance(std::string_view prompt, const EnhanceOptions& options,
                                const RunControl& control) override {
    return guarded([&]() -> Result<EnhanceResult> {
      const std::lock_guard lock(mutex_);
      DQ_TRY(const JobShape job, enhancer_job(prompt, options));
      JobResidency residency(*family_, {device_, options_.memory});
      StageControl stage;
      stage.cancelled = control.cancelled;
      stage.on_load = [&](uint64_t done, uint64_t total) {
        if (control.on_progress) control.on_progress(load_event(done, total));
        return !(control.cancelled && control.cancelled());
      };
      DQ_CHECK(residency.plan(job, stage));
      return family_->enhance(prompt, options, stage, [&](int done, int cap, const std::string& text) {
        ProgressEvent e{Stage::enhance};
        e.step = done, e.steps = cap, e.text = text;
        if (control.on_progress) control.on_progress(e);
      });
    });
  }

 private:
  /// An enhancer's text alone, no picture.
  Result<JobShape> enhancer_job(std::string_view prompt, const EnhanceOptions& options) {
    DQ_CHECK(check_enhance_options(options));
    if (!family_->info().has_prompt_enhancer)
      return usage_error("[enhance] {}: this model has no prompt enhancer (no pe and pe_tokenizer)",
                         family_->info().name);
    const ModelDefaults& d = family_->info().defaults;
    JobShape job{options.width ? options.width : d.width, options.height ? options.height : d.height};
    DQ_TRY(job.enhancer_prompt, family_->count_enhancer_tokens(std::string(prompt), job.width, job.height));
    job.enhancer_new = options.max_new_tokens;
    job.encodes = job.draws = false;
    return job;
  }

  std::shared_ptr<Device> device_;
  std::unique_ptr<ModelFamily> family_;
  ComputeType compute_type_;
  LatentPreview preview_;
  FeatureCache cache_;
  EngineOptions options_;
  Planner planner_;
  std::mutex planner_mutex_;
  std::atomic<uint64_t> allocated_{0}, peak_{0};
  std::mutex mutex_;
};

/// latent_rgb.json beside the VAE's weights, if there is one.
Result<LatentPreview> stored_preview(const Checkpoint& checkpoint) {
  const ComponentFiles* vae = checkpoint.find("vae");
  if (!vae) return LatentPreview{};
  std::error_code ec;
  const bool directory = std::filesystem::is_directory(vae->path, ec);
  const auto file = (directory ? vae->path : vae->path.parent_path()) / "latent_rgb.json";
  if (!std::filesystem::is_regular_file(file, ec)) return LatentPreview{};
  DQ_TRY(const Json json, read_json(file));
  return LatentPreview::parse(json, file.string());
}

Result<std::unique_ptr<Engine>> open_engine(const EngineOptions& options) {
  DQ_TRY(Checkpoint checkpoint, open_checkpoint(options.paths));
  const FamilyEntry* entry = nullptr;
  std::string known;
  for (const FamilyEntry& f : families()) {
    if (f.pipeline_class == checkpoint.pipeline_class) entry = &f;
    known += (known.empty() ? "" : ", ") + std::string(f.pipeline_class);
  }
  if (!entry)
    return bad_input("[model] {}: expected one of the pipelines that this build runs ({}), got '{}'",
                     options.paths.model.empty() ? options.paths.transformer.string() : options.paths.model.string(),
                     known, checkpoint.pipeline_class.empty() ? "unknown" : checkpoint.pipeline_class);
  const Choice choice = choose_device(options);
  DQ_TRY(std::shared_ptr<Device> device, open_device(options, choice));
  DeviceInfo budget = device->info();
  if (options.memory.device_memory) budget.memory_free = options.memory.device_memory;
  const ComputeType type = resolve_compute_type(options.compute_type, checkpoint, budget);
  log::info("{} on {} ({}), {}", checkpoint.pipeline_class, device->info().name, device->info().description,
            name(type));
  DQ_TRY(LatentPreview preview, stored_preview(checkpoint));
  Planner planner{entry, checkpoint, options, choice, type};
  DQ_TRY(std::unique_ptr<ModelFamily> family, entry->make({device, std::move(checkpoint), type}));
  return std::unique_ptr<Engine>(std::make_unique<EngineImpl>(std::move(device), std::move(family), type,
                                                              std::move(preview), options, std::move(planner)));
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::open(const EngineOptions& options) {
  return guarded([&] { return open_engine(options); });
}

std::string_view version() { return DANQING_VERSION; }

std::string_view name(Stage stage) {
  switch (stage) {
    case Stage::load: return "load";
    case Stage::enhance: return "enhance";
    case Stage::encode_text: return "encode_text";
    case Stage::encode_image: return "encode_image";
    case Stage::denoise: return "denoise";
    case Stage::decode: return "decode";
  }
  return "";
}

}  // namespace danqing
