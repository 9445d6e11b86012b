#include "server/engine/worker.h"

#include <algorithm>

#include "base/text.h"
#include "base/try.h"
#include "device/pci.h"
#include "monitor/sampler.h"
#include "server/engine/running.h"
#include "server/ops/ecs_log.h"

namespace danqing::server {
namespace {

using namespace std::chrono_literals;
constexpr double kWait = 1;  // seconds that one look into the queue may take

/// Jobs that may be drawn in one run: everything but prompts, seeds and what becomes of the pictures is equal.
bool compatible(const Ticket& first, const Ticket& other) {
  const GenerateRequest &x = first.spec.request, &y = other.spec.request;
  return first.spec.init_image.empty() && other.spec.init_image.empty() && first.spec.model == other.spec.model &&
         x.width == y.width && x.height == y.height && x.num_inference_steps == y.num_inference_steps &&
         x.guidance_scale == y.guidance_scale && x.shift == y.shift && x.cfg_normalization == y.cfg_normalization &&
         x.cfg_truncation == y.cfg_truncation && x.sampler == y.sampler && x.cuda_noise == y.cuda_noise &&
         !x.one_stream && !y.one_stream && x.batch_size == 0 && y.batch_size == 0;
}

}  // namespace

std::vector<Want::Lane> lanes_that_fit(Models& models, std::vector<std::string>& left_out) {
  std::vector<Want::Lane> out;
  for (const ModelState& m : models.list())
    for (const SizeClass& c : size_classes()) {
      GenerateRequest r;
      r.prompts = {""};
      r.seeds = {0};
      r.width = r.height = c.side;
      r.enhancer = EnhancerMode::off;
      const auto plan = models.find(m.name)->plan(r, 512);
      if (plan)
        out.push_back({m.name, c.name});
      else
        left_out.push_back(fmt::format("{} {}: {}", m.name, c.name, plan.error().message));
    }
  return out;
}

Worker::Worker(const Config& config, Models& models, JobQueue& queue, Enhancer& enhancer, Options options)
    : config_(config), models_(models), queue_(queue), enhancer_(enhancer), options_(std::move(options)) {}

void Worker::start() {
  if (!options_.computes) return;
  thread_ = std::thread([this] { loop(); });
  keeper_ = std::thread([this] { keep_leases(); });
}

void Worker::drain() {
  draining_ = true;
  queue_.wake();
}

void Worker::interrupt() {
  drain();
  interrupted_ = true;
}

void Worker::join() {
  if (thread_.joinable()) thread_.join();
  outbox_.stop();
  joined_ = true;
  if (keeper_.joinable()) keeper_.join();
}

void Worker::post(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  queue_.wake();
}

std::string Worker::trouble() const {
  {
    const std::lock_guard lock(mutex_);
    if (!trouble_.empty()) return trouble_;
  }
  return queue_.trouble();
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

// Leases are kept from a thread of their own: loading a model may take longer than a lease.
void Worker::keep_leases() {
  while (!joined_) {
    std::list<RunningPtr> leased;
    {
      const std::lock_guard lock(mutex_);
      leased = leased_;
    }
    for (const RunningPtr& j : leased) queue_.extend(j->lease);
    std::this_thread::sleep_for(100ms);
  }
}

bool Worker::run_task() {
  std::function<void()> task;
  {
    const std::lock_guard lock(mutex_);
    if (tasks_.empty()) return false;
    task = std::move(tasks_.front());
    tasks_.pop_front();
  }
  busy_ = true;
  try {
    task();
  } catch (const std::exception& e) {
    log_event(log::Level::error, fmt::format("[internal] {}", e.what()), {{"event.action", "task-failed"}});
  }
  busy_ = false;
  return true;
}

std::vector<Lease> Worker::take() {
  Want want;
  want.lanes = options_.lanes;
  const bool cpu = models_.device().is_cpu;
  want.most = config_.batch_size ? config_.batch_size : cpu ? 1 : 4;
  want.together = compatible;
  auto leases = queue_.take(want, kWait);
  if (leases) {
    said_away_ = false;
    return std::move(*leases);
  }
  if (!said_away_) log_event(log::Level::warning, leases.error().message, {{"event.action", "queue-not-reached"}});
  said_away_ = true;
  for (int i = 0; i < 10 && !draining_; ++i) std::this_thread::sleep_for(100ms);
  return {};
}

void Worker::loop() {
  if (config_.preload) warm_up();
  ready_ = true;
  while (!draining_ && !lost_) {
    run_task();
    std::vector<Lease> leases = take();
    if (leases.empty()) continue;
    busy_ = true;
    run(std::move(leases));
    busy_ = false;
  }
}

void Worker::run(std::vector<Lease> leases) {
  std::vector<RunningPtr> batch;
  int images = 0;
  for (Lease& lease : leases) {
    auto job = std::make_shared<Running>();
    job->lease = std::move(lease);
    job->images = job->ticket().images();
    job->started = now_seconds();
    images += job->images;
    batch.push_back(std::move(job));
  }
  {
    const std::lock_guard lock(mutex_);
    leased_.insert(leased_.end(), batch.begin(), batch.end());
  }
  if (draining_) {  // taken in the last moment
    for (const RunningPtr& j : batch) give_back(j, false);
    return;
  }
  for (const RunningPtr& j : batch) {
    const Ticket& t = j->ticket();
    if (options_.shared)
      log_event(log::Level::info, "job started",
                {{"trace.id", t.trace_id},
                 {"event.action", "job-started"},
                 {"danqing.job.id", t.id},
                 {"danqing.worker", options_.name},
                 {"danqing.attempt", j->lease.attempt}});
    Update u = j->update(Update::Kind::running, options_.name);
    u.together = j == batch[0] ? images : 0;
    post_out([this, j, u] { queue_.tell(j->lease, u); });
  }
  try {
    const double now = now_seconds();
    std::erase_if(batch, [&](const RunningPtr& j) {
      const bool late = j->ticket().deadline > 0 && now > j->ticket().deadline;
      if (late) finish(j, Error{ErrorCode::cancelled, "[jobs] not done by its deadline"}, {});
      return late;
    });
    if (batch.empty()) return;
    auto engine = models_.use(batch[0]->ticket().spec.model, batch[0]->ticket().spec.request);
    if (!engine) {
      for (const RunningPtr& j : batch) finish(j, engine.error(), {});
      return;
    }
    for (const RunningPtr& j : batch) enhance(j, **engine);
    draw(batch, **engine);
  } catch (const std::exception& e) {
    for (const RunningPtr& j : batch) finish(j, fail(ErrorCode::failed, "[internal] {}", e.what()), {});
  }
}

void Worker::enhance(const RunningPtr& job, Engine& engine) {
  Enhancer::Run run;
  run.cancelled = [&] { return interrupted_ || job->cancelled(); };
  run.on_progress = [&](const ProgressEvent& e) { progress({job}, e); };
  run.note = [&](const std::string& n) { post_out([job, n] { job->notes.push_back(n); }); };
  job->revised = enhancer_.enhance(job->ticket(), engine, run);
}

}  // namespace danqing::server
