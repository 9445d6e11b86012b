#include "server/jobs/jobs.h"

#include <algorithm>

#include "base/text.h"
#include "base/try.h"
#include "doctor/explain.h"
#include "server/jobs/job_log.h"
#include "server/jobs/trace.h"

namespace danqing::server {
namespace {

constexpr int kMaxAttempts = 5;  // a job that takes the server down with it must not do so for ever
constexpr size_t kMaxUnstored = 1000;

/// Jobs that may be drawn in one run: everything but prompts, seeds and what becomes of the pictures is equal.
bool compatible(const JobSpec& a, const JobSpec& b) {
  const GenerateRequest &x = a.request, &y = b.request;
  return a.model == b.model && x.width == y.width && x.height == y.height &&
         x.num_inference_steps == y.num_inference_steps && x.guidance_scale == y.guidance_scale && x.shift == y.shift &&
         x.cfg_normalization == y.cfg_normalization && x.cfg_truncation == y.cfg_truncation && x.sampler == y.sampler &&
         x.cuda_noise == y.cuda_noise && !x.one_stream && !y.one_stream && x.batch_size == 0 && y.batch_size == 0;
}

}  // namespace

Jobs::Jobs(const Config& config, Store& store, Metrics& metrics) : config_(config), store_(store), metrics_(metrics) {}

void Jobs::recover(const std::function<void(LivePtr)>& prepare) {
  for (JobRecord& record : store_.unfinished()) {
    auto job = std::make_shared<LiveJob>();
    job->record = std::move(record);
    job->deadline = job->record.spec.deadline_seconds > 0 ? now_seconds() + job->record.spec.deadline_seconds : 0;
    job->images = job->record.spec.images();
    const bool hopeless = job->record.status == Status::running && job->record.attempts >= kMaxAttempts;
    const bool unreadable = job->record.spec.request.prompts.empty();
    job->record.status = Status::queued;
    {
      const std::lock_guard lock(mutex_);
      live_[job->record.id] = job;
    }
    if (unreadable || hopeless) {
      close(job, Status::failed, "interrupted",
            unreadable ? "[jobs] the stored job cannot be read"
                       : "[jobs] the server ended five times while it drew this job",
            {});
      continue;
    }
    (void)store_.requeue(job->record.id);
    if (prepare) prepare(job);
    log_event(log::Level::info, "job waits again after a restart", trace_fields(job->record, "job-recovered"));
    const std::lock_guard lock(mutex_);
    queue_.push({job->record.id, job->record.key, job->record.spec.priority, job->record.seq});
  }
  wake_.notify_all();
}

Api<Jobs::Submission> Jobs::submit(JobRecord record, const std::function<void(LivePtr)>& prepare) {
  const std::string& idem = record.idempotency_key;
  const auto known = [&]() -> std::optional<Api<Submission>> {
    if (idem.empty()) return {};
    auto old = store_.find_idempotent(record.key, idem);
    if (!old) return {};
    if (old->request_hash != record.request_hash)
      return ApiError{422, "idempotency_key_reused", "[jobs] this Idempotency-Key was used for another request"};
    return Submission{std::move(*old), true};
  };
  if (auto k = known()) return std::move(*k);
  auto job = std::make_shared<LiveJob>();
  {
    const std::lock_guard lock(mutex_);
    if (draining_) return ApiError{503, "stopping", "[jobs] the server is stopping", "", 10};
    const int wait = std::clamp(static_cast<int>(seconds_per_job_ * static_cast<double>(queue_.size()) / 4), 1, 60);
    if (queue_.size() >= static_cast<size_t>(config_.queue_size))
      return ApiError{429, "queue_full", fmt::format("[jobs] the queue is full ({} jobs wait)", queue_.size()), "",
                      wait};
    if (queue_.size_of(record.key) >= static_cast<size_t>(config_.queue_per_key))
      return ApiError{429, "queue_full", fmt::format("[jobs] {} jobs of this key wait already", config_.queue_per_key),
                      "", wait};
  }
  record.id = new_job_id();
  record.status = Status::queued;
  record.created = now_seconds();
  job->record = std::move(record);
  if (auto r = store_.insert(job->record); !r) {
    if (auto k = known()) return std::move(*k);  // the same request, at the same time
    log_event(log::Level::error, r.error().message, trace_fields(job->record, "job-not-stored"));
    return ApiError{507, "not_stored", "[jobs] the job cannot be stored: " + r.error().message};
  }
  if (job->record.spec.deadline_seconds > 0) job->deadline = job->record.created + job->record.spec.deadline_seconds;
  job->images = job->record.spec.images();
  if (prepare) prepare(job);
  Json fields = trace_fields(job->record, "job-accepted");
  fields.update(gen_ai_fields(job->record.spec, config_.log_prompts));
  log_event(log::Level::info, "job accepted", fields);
  Submission s{job->record, false};
  {
    const std::lock_guard lock(mutex_);
    live_[job->record.id] = job;
    queue_.push({job->record.id, job->record.key, job->record.spec.priority, job->record.seq});
  }
  wake_.notify_all();
  return s;
}

Api<LivePtr> Jobs::submit_task(const Caller& caller, const std::string& trace_id, std::function<void(LiveJob&)> task) {
  const std::lock_guard lock(mutex_);
  if (draining_) return ApiError{503, "stopping", "[jobs] the server is stopping", "", 10};
  if (queue_.size() >= static_cast<size_t>(config_.queue_size))
    return ApiError{429, "queue_full", "[jobs] the queue is full", "", 5};
  auto job = std::make_shared<LiveJob>();
  job->record.id = new_job_id();
  job->record.key = caller.name;
  job->record.trace_id = trace_id;
  job->record.created = now_seconds();
  job->task = std::move(task);
  live_[job->record.id] = job;
  queue_.push({job->record.id, caller.name, 100, 0});  // short work: the key's next
  wake_.notify_all();
  return job;
}

void Jobs::release(const LivePtr& job) {
  {
    const std::lock_guard lock(mutex_);
    job->held = false;
  }
  wake_.notify_all();
}

int Jobs::position(const std::string& id) const {
  int n = 0;
  for (const QueueEntry& e : queue_.order()) {
    ++n;
    if (e.id == id) return n;
  }
  return 0;
}

double Jobs::eta(const LiveJob& j) const {
  if (j.seconds_per_step <= 0 || j.steps <= 0) return 0;
  const int groups_left = j.images > 0 ? std::max(0, j.images - j.image - 1) : 0;
  return j.seconds_per_step * (j.steps - j.step + groups_left * j.steps);
}

Json Jobs::progress_json(const LiveJob& j) const {
  Json p{{"stage", j.stage.empty() ? "queued" : j.stage},
         {"step", j.step},
         {"steps", j.steps},
         {"image", j.image},
         {"images", j.images}};
  p["seconds_per_step"] = j.seconds_per_step;
  p["eta_seconds"] = eta(j);
  return p;
}

std::optional<JobView> Jobs::view(const std::string& id) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto it = live_.find(id); it != live_.end() && !it->second->task) {
      const LiveJob& j = *it->second;
      JobView v{j.record, j.pictures, progress_json(j), 0};
      v.record.notes = j.notes;
      if (j.record.status == Status::queued) {
        v.position = position(id);
        v.progress["eta_seconds"] = seconds_per_job_ * v.position;
      }
      return v;
    }
    if (const auto it = unstored_.find(id); it != unstored_.end()) return it->second;
  }
  auto record = store_.find(id);
  if (!record) return {};
  return JobView{std::move(*record), store_.pictures(id), Json(), 0};
}

std::vector<JobView> Jobs::active(const Caller& caller) {
  const std::lock_guard lock(mutex_);
  std::vector<JobView> out;
  for (const auto& [id, j] : live_)
    if (!j->task && j->record.status == Status::running && may_see(caller, j->record))
      out.push_back({j->record, j->pictures, progress_json(*j), 0});
  int n = 0;
  for (const QueueEntry& e : queue_.order()) {
    ++n;
    const auto it = live_.find(e.id);
    if (it != live_.end() && !it->second->task && may_see(caller, it->second->record))
      out.push_back({it->second->record, {}, progress_json(*it->second), n});
  }
  return out;
}

bool Jobs::cancel(const std::string& id, const std::string& code, const std::string& message) {
  LivePtr job;
  {
    const std::lock_guard lock(mutex_);
    const auto it = live_.find(id);
    if (it == live_.end()) return false;
    job = it->second;
  }
  if (job->task) {
    job->out = true;
    return true;
  }
  const bool by_user = code == "cancelled";
  if (job->out) return false;
  close(job, by_user ? Status::cancelled : Status::failed, code, message, {});
  return true;
}

// The one place where a job ends. Whoever comes second finds it ended.
void Jobs::close(const LivePtr& job, Status status, const std::string& code, const std::string& message,
                 const Json& timing) {
  if (job->out.exchange(true)) return;
  JobRecord record;
  std::vector<Picture> pictures;
  {
    const std::lock_guard lock(mutex_);
    queue_.remove(job->record.id);
    job->record.finished = now_seconds();
    job->record.error_code = code;
    job->record.error_message = message;
    job->record.notes = job->notes;
    job->record.timing = timing;
    record = job->record;
    record.status = status;
    pictures = job->pictures;
  }
  if (auto r = store_.finish(record, pictures); !r) {
    log_event(log::Level::error, r.error().message, trace_fields(record, "job-end-not-stored"));
    const std::lock_guard lock(mutex_);
    record.notes.push_back("the job's end cannot be stored: " + r.error().message);
    if (unstored_.size() >= kMaxUnstored) unstored_.erase(unstored_.begin());
    unstored_[record.id] = JobView{record, pictures, Json(), 0};
  }
  {
    const std::lock_guard lock(mutex_);
    job->record.status = status;
    job->pictures = pictures;
    live_.erase(record.id);
    if (status == Status::done) {
      const double seconds = record.finished - record.started;
      seconds_per_job_ = seconds_per_job_ == 0 ? seconds : 0.8 * seconds_per_job_ + 0.2 * seconds;
    }
  }
  metrics_.job_finished(std::string(name(status)), code);
  if (status == Status::done)
    for (size_t i = 0; i < pictures.size(); ++i)
      metrics_.picture((record.finished - record.started) / static_cast<double>(pictures.size()));
  log_end(*job);
  Event e;
  e.type = std::string(name(status));
  e.final = true;
  emit(job, std::move(e));
  tell_positions();
}

void Jobs::log_end(const LiveJob& job) const {
  const JobRecord& r = job.record;
  Json fields = trace_fields(r, "job-finished");
  fields["event.outcome"] = r.status == Status::done ? "success" : r.status == Status::failed ? "failure" : "unknown";
  fields["event.duration"] = static_cast<int64_t>((r.finished - r.created) * 1e9);
  if (!r.error_code.empty()) fields["error.code"] = r.error_code;
  if (!r.error_message.empty()) fields["error.message"] = r.error_message;
  log_event(r.status == Status::failed ? log::Level::warning : log::Level::info, "job " + std::string(name(r.status)),
            fields);
}

Result<std::string> Jobs::picture_bytes(const std::string& job, int n) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto it = unsaved_.find({job, n}); it != unsaved_.end()) return it->second;
  }
  return store_.read_picture(job, n);
}

std::vector<LivePtr> Jobs::take(int most) {
  std::vector<LivePtr> batch;
  {
    std::unique_lock lock(mutex_);
    QueueEntry entry;
    const auto ready = [&](const QueueEntry& e) {
      const auto it = live_.find(e.id);
      return it != live_.end() && !it->second->held;
    };
    wake_.wait(lock, [&] { return stopped_ || (!draining_ && queue_.pop(ready, entry)); });
    if (stopped_) return {};
    batch.push_back(live_.at(entry.id));
    if (!batch[0]->task) {
      int pictures = batch[0]->images;
      const auto joins = [&](const QueueEntry& e) {
        if (!ready(e)) return false;
        const LiveJob& j = *live_.at(e.id);
        return !j.task && pictures + j.images <= most && compatible(batch[0]->record.spec, j.record.spec);
      };
      while (pictures < most && queue_.pop(joins, entry)) {
        batch.push_back(live_.at(entry.id));
        pictures += batch.back()->images;
      }
      metrics_.batch(pictures);
    }
    for (const LivePtr& j : batch) {
      j->record.status = Status::running;
      j->record.started = now_seconds();
      ++j->record.attempts;
    }
  }
  for (const LivePtr& j : batch) {
    if (j->task) continue;
    metrics_.queue_wait(j->record.started - j->record.created);
    log_started(j->record.trace_id, j->record.id, j->record.started - j->record.created);
    if (auto r = store_.start(j->record.id, j->record.started); !r)
      log_event(log::Level::error, r.error().message, trace_fields(j->record, "job-start-not-stored"));
    Event e;
    e.type = "running";
    emit(j, std::move(e));
  }
  tell_positions();
  return batch;
}

void Jobs::note(const LivePtr& job, const std::string& note) {
  const std::lock_guard lock(mutex_);
  if (std::find(job->notes.begin(), job->notes.end(), note) == job->notes.end()) job->notes.push_back(note);
}

void Jobs::finish(const LivePtr& job, const std::optional<Error>& error, const Json& timing) {
  events_.post([this, job, error, timing] {
    if (!error) return close(job, Status::done, "", "", timing);
    const char* code = error->code == ErrorCode::does_not_fit  ? "does_not_fit"
                       : error->code == ErrorCode::device_lost ? "device_lost"
                       : error->code == ErrorCode::usage       ? "invalid_value"
                                                               : "failed";
    const std::string cause = doctor::likely_cause(*error);
    close(job, Status::failed, code, cause.empty() ? error->message : error->message + "; " + cause, timing);
  });
}

void Jobs::task_finished(const LivePtr& job) {
  const std::lock_guard lock(mutex_);
  job->record.status = Status::done;
  live_.erase(job->record.id);
}

void Jobs::put_back(const LivePtr& job) {
  if (job->task || job->out) return;
  (void)store_.requeue(job->record.id);
}

void Jobs::tick() {
  std::vector<std::string> late;
  const double now = now_seconds();
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, j] : live_)
      if (!j->task && j->deadline > 0 && now > j->deadline && !j->out) late.push_back(id);
  }
  for (const std::string& id : late) cancel(id, "deadline_exceeded", "[jobs] not done by its deadline");
}

void Jobs::drain() {
  const std::lock_guard lock(mutex_);
  draining_ = true;
}

void Jobs::stop() {
  {
    const std::lock_guard lock(mutex_);
    draining_ = true;
    stopped_ = true;
  }
  wake_.notify_all();
  events_.stop();
}

size_t Jobs::queued() const {
  const std::lock_guard lock(mutex_);
  return queue_.size();
}

size_t Jobs::running() const {
  const std::lock_guard lock(mutex_);
  return static_cast<size_t>(std::count_if(live_.begin(), live_.end(),
                                           [](const auto& e) { return e.second->record.status == Status::running; }));
}

}  // namespace danqing::server
