#include "server/jobs/jobs.h"

#include <algorithm>
#include <limits>

#include "base/text.h"
#include "base/try.h"
#include "server/jobs/job_log.h"
#include "server/jobs/trace.h"

namespace danqing::server {
namespace {

constexpr size_t kMaxUnstored = 1000;

}  // namespace

Jobs::Jobs(const Config& config, Store& store, Metrics& metrics, JobQueue& queue, Hooks hooks)
    : config_(config), store_(store), metrics_(metrics), queue_(queue), hooks_(std::move(hooks)) {}

void Jobs::recover(const std::function<void(LivePtr)>& prepare) {
  std::vector<LivePtr> found;
  for (JobRecord& record : store_.unfinished()) {
    auto job = std::make_shared<LiveJob>();
    job->record = std::move(record);
    job->deadline = job->record.spec.deadline_seconds > 0 ? now_seconds() + job->record.spec.deadline_seconds : 0;
    job->images = job->record.spec.images();
    job->record.status = Status::queued;
    const bool unreadable = job->record.spec.request.prompts.empty();
    {
      const std::lock_guard lock(mutex_);
      live_[job->record.id] = job;
    }
    if (unreadable) {
      close(job, Status::failed, "interrupted", "[jobs] the stored job cannot be read", {});
      continue;
    }
    (void)store_.requeue(job->record.id);
    found.push_back(job);
    log_event(log::Level::info, "job waits again after a restart", trace_fields(job->record, "job-recovered"));
  }
  if (auto r = queue_.listen([this](const Update& u) { return hear(u); }); !r)
    log_event(log::Level::error, r.error().message, {{"event.action", "queue-not-heard"}});
  for (const LivePtr& job : found) {
    if (job->out) continue;
    if (prepare) prepare(job);
    enqueue(job);
  }
}

// What cannot be submitted now (a queue that is away for a while) is tried again by tick(): the job is in the store.
void Jobs::enqueue(const LivePtr& job) {
  Ticket t;
  {
    const std::lock_guard lock(mutex_);
    if (job->held || job->sent || job->out) return;
    const JobRecord& r = job->record;
    t.id = r.id, t.key = r.key, t.trace_id = r.trace_id;
    t.seq = r.seq, t.created = r.created, t.deadline = job->deadline;
    t.spec = r.spec;
    t.revised = job->revised;
    job->sent = true;
  }
  t.size_class = hooks_.size_class(t.spec);
  const auto submitted = queue_.submit(t);
  if (submitted) return;
  log_event(log::Level::warning, submitted.error().message + "; the job waits here and is tried again",
            trace_fields(job->record, "job-not-queued"));
  const std::lock_guard lock(mutex_);
  job->sent = false;
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
    size_t waiting = 0, of_key = 0;
    for (const auto& [id, j] : live_)
      if (j->record.status == Status::queued) ++waiting, of_key += j->record.key == record.key;
    const int wait = std::clamp(static_cast<int>(seconds_per_job_ * static_cast<double>(waiting) / 4), 1, 60);
    if (waiting >= static_cast<size_t>(config_.queue_size))
      return ApiError{429, "queue_full", fmt::format("[jobs] the queue is full ({} jobs wait)", waiting), "", wait};
    if (of_key >= static_cast<size_t>(config_.queue_per_key))
      return ApiError{429, "queue_full", fmt::format("[jobs] {} jobs of this key wait already", config_.queue_per_key),
                      "", wait};
  }
  // It could only wait for ever; a job without a picture is never that large.
  const size_t most = queue_.largest_ticket();
  if (!record.spec.init_image.empty() && most < std::numeric_limits<size_t>::max())
    if (const size_t bytes = dump_json(to_json(record.spec)).size() + 1024; bytes > most)
      return ApiError{
          413, "too_large",
          fmt::format(
              "[init_image] the queue takes jobs of at most {} bytes, got {} with the picture (NATS: max_payload)",
              most, bytes),
          "init_image"};
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
  Json fields = trace_fields(job->record, "job-accepted");
  fields.update(gen_ai_fields(job->record.spec, config_.log_prompts));
  log_event(log::Level::info, "job accepted", fields);
  Submission s{job->record, false};
  {
    const std::lock_guard lock(mutex_);
    live_[job->record.id] = job;
  }
  if (prepare) prepare(job);
  enqueue(job);
  return s;
}

Api<LivePtr> Jobs::submit_task(const Caller& caller, const std::string& trace_id, std::function<void(LiveJob&)> task) {
  if (!hooks_.run_task)
    return ApiError{422, "no_engine",
                    "[enhance] this server draws nothing itself: give it --enhancer-url or --also-work"};
  auto job = std::make_shared<LiveJob>();
  {
    const std::lock_guard lock(mutex_);
    if (draining_) return ApiError{503, "stopping", "[jobs] the server is stopping", "", 10};
    size_t tasks = 0;
    for (const auto& [id, j] : live_) tasks += j->task != nullptr;
    if (tasks >= static_cast<size_t>(config_.queue_size))
      return ApiError{429, "queue_full", "[jobs] the queue is full", "", 5};
    job->record.id = new_job_id();
    job->record.key = caller.name;
    job->record.trace_id = trace_id;
    job->record.created = now_seconds();
    job->task = std::move(task);
    live_[job->record.id] = job;
  }
  hooks_.run_task([this, job] {
    job->task(*job);
    const std::lock_guard lock(mutex_);
    live_.erase(job->record.id);
  });
  return job;
}

void Jobs::release(const LivePtr& job) {
  {
    const std::lock_guard lock(mutex_);
    job->held = false;
  }
  enqueue(job);
}

std::vector<std::string> Jobs::waiting() const {
  std::vector<std::string> out = queue_.order();
  std::erase_if(out, [&](const std::string& id) {
    const auto it = live_.find(id);
    return it == live_.end() || it->second->record.status != Status::queued;
  });
  std::vector<std::pair<int64_t, std::string>> here;  // the queue does not have them yet
  for (const auto& [id, j] : live_)
    if (!j->task && !j->sent && j->record.status == Status::queued) here.emplace_back(j->record.seq, id);
  std::sort(here.begin(), here.end());
  for (auto& [seq, id] : here) out.push_back(std::move(id));
  return out;
}

int Jobs::position(const std::string& id) const {
  const std::vector<std::string> all = waiting();
  const auto it = std::find(all.begin(), all.end(), id);
  return it == all.end() ? 1 : static_cast<int>(it - all.begin()) + 1;  // a worker has just taken it
}

LivePtr Jobs::find(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const auto it = live_.find(id);
  return it == live_.end() ? nullptr : it->second;
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
  for (const std::string& id : waiting()) {
    ++n;
    const LivePtr& j = live_.at(id);
    if (may_see(caller, j->record)) out.push_back({j->record, {}, progress_json(*j), n});
  }
  return out;
}

bool Jobs::cancel(const std::string& id, const std::string& code, const std::string& message) {
  const LivePtr job = find(id);
  if (!job) return false;
  if (job->task) {
    job->out = true;
    return true;
  }
  const bool by_user = code == "cancelled";
  if (job->out) return false;
  close(job, by_user ? Status::cancelled : Status::failed, code, message, {});
  Outcome how;
  how.status = by_user ? Status::cancelled : Status::failed;
  how.code = code, how.message = message;
  tell_queue(job, how);
  return true;
}

void Jobs::tell_queue(const LivePtr& job, const Outcome& how) {
  Ticket t;
  t.id = job->record.id, t.key = job->record.key, t.trace_id = job->record.trace_id;
  t.spec = job->record.spec;
  t.size_class = hooks_.size_class(t.spec);
  const auto told = queue_.cancel(t, how);
  const std::lock_guard lock(mutex_);
  if (told)
    untold_.erase(t.id);
  else
    untold_[t.id] = {job, how};
}

// The one place where a job ends. Whoever comes second finds it ended.
bool Jobs::close(const LivePtr& job, Status status, const std::string& code, const std::string& message,
                 const Json& timing) {
  if (job->out.exchange(true)) return false;
  bool stored = true;
  JobRecord record;
  std::vector<Picture> pictures;
  {
    const std::lock_guard lock(mutex_);
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
    stored = false;
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
  return stored;
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

void Jobs::note(const LivePtr& job, const std::string& note) {
  const std::lock_guard lock(mutex_);
  if (std::find(job->notes.begin(), job->notes.end(), note) == job->notes.end()) job->notes.push_back(note);
}

void Jobs::tick() {
  std::vector<std::string> late;
  std::vector<LivePtr> unsent;
  std::map<std::string, std::pair<LivePtr, Outcome>> untold;
  const double now = now_seconds();
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, j] : live_)
      if (!j->task && j->deadline > 0 && now > j->deadline && !j->out)
        late.push_back(id);
      else if (!j->task && !j->sent && !j->held && j->record.status == Status::queued)
        unsent.push_back(j);
    untold = untold_;
  }
  if (!queue_.trouble().empty()) unsent.clear(), untold.clear();
  for (const LivePtr& job : unsent) enqueue(job);
  for (const auto& [id, what] : untold) tell_queue(what.first, what.second);
  for (const std::string& id : late) cancel(id, "deadline_exceeded", "[jobs] not done by its deadline");
}

void Jobs::drain() {
  const std::lock_guard lock(mutex_);
  draining_ = true;
}

void Jobs::stop() {
  draining_ = true;
  queue_.stop();
  events_.stop();
}

size_t Jobs::queued() const {
  const std::lock_guard lock(mutex_);
  return static_cast<size_t>(std::count_if(live_.begin(), live_.end(),
                                           [](const auto& e) { return e.second->record.status == Status::queued; }));
}

size_t Jobs::running() const {
  const std::lock_guard lock(mutex_);
  return static_cast<size_t>(std::count_if(live_.begin(), live_.end(),
                                           [](const auto& e) { return e.second->record.status == Status::running; }));
}

}  // namespace danqing::server
