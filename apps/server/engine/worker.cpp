#include "server/engine/worker.h"

#include <algorithm>

#include "base/try.h"
#include "device/pci.h"
#include "monitor/sampler.h"
#include "server/ops/ecs_log.h"

namespace danqing::server {
namespace {

/// One run for several jobs: each picture a prompt of its own, so that prompts, seeds and revised prompts line up.
GenerateRequest merged(const std::vector<LivePtr>& batch, int batch_size) {
  GenerateRequest all = batch[0]->record.spec.request;
  bool revised = false;
  for (const LivePtr& j : batch) revised |= !j->revised.empty();
  if (batch.size() == 1) {
    all.revised_prompts = batch[0]->revised;
  } else {
    all.prompts.clear(), all.negative_prompts.clear(), all.seeds.clear(), all.revised_prompts.clear();
    all.images_per_prompt = 1;
    for (const LivePtr& j : batch) {
      const GenerateRequest& r = j->record.spec.request;
      for (int i = 0; i < j->images; ++i) {
        const auto prompt = static_cast<size_t>(i / r.images_per_prompt);
        all.prompts.push_back(r.prompts[prompt]);
        all.negative_prompts.push_back(r.negative_prompts.empty()       ? ""
                                       : r.negative_prompts.size() == 1 ? r.negative_prompts[0]
                                                                        : r.negative_prompts[prompt]);
        all.seeds.push_back(r.seeds.size() > 1 ? r.seeds[static_cast<size_t>(i)]
                                               : r.seeds[0] + static_cast<uint64_t>(i));
        if (revised) all.revised_prompts.push_back(j->revised.empty() ? r.prompts[prompt] : j->revised[prompt]);
      }
    }
  }
  all.enhancer = EnhancerMode::off;
  all.enhance.seed.reset();
  if (all.batch_size == 0) all.batch_size = batch_size;
  return all;
}

Json timing_json(const GenerateResult& r) {
  return {{"total", r.seconds_total},
          {"load", r.seconds_load},
          {"text", r.seconds_text},
          {"denoise", r.seconds_denoise},
          {"decode", r.seconds_decode},
          {"per_step", r.seconds_per_step},
          {"num_inference_steps", r.num_inference_steps}};
}

/// The card's energy, shared by the pictures of the run.
void add_energy(Json& timing, const std::optional<monitor::EnergyMeter::Result>& energy, int images, int of_job) {
  if (!energy || images <= 0) return;
  const double each = energy->joules / images;
  timing["energy"] = {
      {"joules", each * of_job}, {"joules_per_picture", each}, {"source", energy->counted ? "counter" : "power"}};
}

}  // namespace

Worker::Worker(const Config& config, Models& models, Jobs& jobs, Enhancer& enhancer)
    : config_(config), models_(models), jobs_(jobs), enhancer_(enhancer) {}

void Worker::start() {
  thread_ = std::thread([this] { loop(); });
}

void Worker::join() {
  if (thread_.joinable()) thread_.join();
}

std::string Worker::trouble() const {
  const std::lock_guard lock(mutex_);
  return trouble_;
}

void Worker::set_trouble(const std::string& text) {
  const std::lock_guard lock(mutex_);
  trouble_ = text;
}

std::string Worker::energy_card() const {
  if (config_.energy_card == "none") return "";
  return config_.energy_card == "auto" ? pci_address(models_.device().name) : config_.energy_card;
}

void Worker::warm_up() {
  const std::string model = models_.resolve("");
  GenerateRequest r;
  r.prompts = {""};
  r.seeds = {0};
  const int side = std::max(64, models_.find(model)->info().size_multiple);
  r.width = r.height = side;
  r.num_inference_steps = 1;
  r.enhancer = EnhancerMode::off;
  auto engine = models_.use(model, r);
  if (!engine) return set_trouble(engine.error().message);
  RunControl control;
  control.cancelled = [this] { return interrupted_.load(); };
  const auto result = (*engine)->generate(r, control);
  if (!result && result.error().code != ErrorCode::cancelled) {
    set_trouble(result.error().message);
    log_event(log::Level::error, result.error().message, {{"event.action", "model-load-failed"}});
  }
}

void Worker::loop() {
  if (config_.preload) warm_up();
  ready_ = true;
  for (;;) {
    const bool cpu = models_.device().is_cpu;
    const std::vector<LivePtr> batch = jobs_.take(config_.batch_size ? config_.batch_size : cpu ? 1 : 4);
    if (batch.empty()) return;
    busy_ = true;
    try {
      run(batch);
    } catch (const std::exception& e) {
      for (const LivePtr& j : batch) jobs_.finish(j, fail(ErrorCode::failed, "[internal] {}", e.what()), {});
    }
    busy_ = false;
  }
}

void Worker::run(const std::vector<LivePtr>& batch) {
  if (batch[0]->task) {
    batch[0]->task(*batch[0]);
    return jobs_.task_finished(batch[0]);
  }
  auto engine = models_.use(batch[0]->record.spec.model, batch[0]->record.spec.request);
  if (!engine) {
    for (const LivePtr& j : batch) jobs_.finish(j, engine.error(), {});
    return;
  }
  for (const LivePtr& j : batch) enhancer_.enhance(j, **engine);
  draw(batch, **engine);
}

void Worker::draw(const std::vector<LivePtr>& batch, Engine& engine) {
  int images = 0;
  std::vector<std::pair<LivePtr, int>> owner;  // of picture i: the job and its own number there
  for (const LivePtr& j : batch) {
    for (int i = 0; i < j->images; ++i) owner.emplace_back(j, i);
    images += j->images;
  }
  const GenerateRequest request = merged(batch, batch.size() > 1 ? images : config_.batch_size);
  RunControl control;
  control.cancelled = [&] {
    return interrupted_ || std::all_of(batch.begin(), batch.end(), [](const LivePtr& j) { return j->out.load(); });
  };
  control.on_progress = [&](const ProgressEvent& e) { jobs_.progress(batch, e); };
  control.on_image = [&](const GeneratedImage& g) {
    const auto& [job, n] = owner[static_cast<size_t>(g.index)];
    jobs_.image(job, n, g, job->record.spec.model);
  };
  if (config_.preview_every > 0) {
    control.wants_preview = [&](int step) {
      return step % config_.preview_every == 0 &&
             std::any_of(batch.begin(), batch.end(), [](const LivePtr& j) { return j->preview_listeners > 0; });
    };
    control.on_preview = [&](int i, int step, const Image& image) {
      const auto& [job, n] = owner[static_cast<size_t>(i)];
      if (job->preview_listeners > 0 && !job->out) jobs_.preview(job, n, step, image);
    };
  }
  monitor::EnergyMeter meter({.root = config_.sysfs_root, .nvml = {}}, energy_card());
  const auto result = engine.generate(request, control);
  const auto energy = meter.stop();
  if (result) {
    set_trouble("");
    for (const LivePtr& j : batch) {
      for (const std::string& n : result->notes) jobs_.note(j, n);
      Json timing = timing_json(*result);
      add_energy(timing, energy, images, j->images);
      jobs_.finish(j, {}, timing);
    }
    return;
  }
  const Error& e = result.error();
  if (e.code == ErrorCode::cancelled) {
    if (interrupted_)
      for (const LivePtr& j : batch) jobs_.put_back(j);
    return;
  }
  if (e.code == ErrorCode::does_not_fit && batch.size() > 1) {  // less at a time
    for (const LivePtr& j : batch) draw({j}, engine);
    return;
  }
  if (e.code == ErrorCode::device_lost) set_trouble(e.message);
  for (const LivePtr& j : batch) jobs_.finish(j, e, {});
}

}  // namespace danqing::server
