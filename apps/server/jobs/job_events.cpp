// What the queue tells about jobs while they wait and run, and when they end: to listeners (on the events thread, in
// order), and the finished pictures to the disk.
#include <algorithm>

#include "base/try.h"
#include "server/jobs/job_log.h"
#include "server/jobs/jobs.h"
#include "server/jobs/trace.h"

namespace danqing::server {
namespace {

constexpr size_t kOutboxFull = 256;  // events that wait; beyond it only those that count are made
constexpr size_t kMaxUnsaved = 64u << 20;

}  // namespace

void Jobs::emit(const LivePtr& job, Event event) {
  events_.post([this, job, event = std::move(event)] {
    std::map<int, Listener> listeners;
    {
      const std::lock_guard lock(mutex_);
      listeners = job->listeners;
    }
    for (auto& [token, listener] : listeners) listener(event);
  });
}

int Jobs::subscribe(const std::string& id, bool previews, Listener listener) {
  LivePtr job;
  int token = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto it = live_.find(id);
    if (it == live_.end()) return 0;
    job = it->second;
    token = next_token_++;
  }
  if (previews && job->preview_listeners++ == 0) queue_.want_previews(id, true);
  events_.post([this, job, token, l = std::move(listener)] {
    Event e;
    {
      const std::lock_guard lock(mutex_);
      e.type = std::string(name(job->record.status));
      e.final = is_final(job->record.status);
      if (!e.final) {
        job->listeners[token] = l;
        e.data = progress_json(*job);
        if (job->record.status == Status::queued) e.data["position"] = position(job->record.id);
      }
    }
    l(e);
  });
  return token;
}

void Jobs::unsubscribe(const std::string& id, int token, bool previews) {
  if (token == 0) return;
  LivePtr job;
  {
    const std::lock_guard lock(mutex_);
    const auto it = live_.find(id);
    if (it == live_.end()) return;
    job = it->second;
  }
  if (previews && --job->preview_listeners == 0) queue_.want_previews(id, false);
  events_.post([this, job, token] {
    const std::lock_guard lock(mutex_);
    job->listeners.erase(token);
  });
}

void Jobs::tell_positions() {
  std::vector<std::pair<LivePtr, int>> waiting;
  {
    const std::lock_guard lock(mutex_);
    if (std::none_of(live_.begin(), live_.end(), [](const auto& e) { return !e.second->listeners.empty(); })) return;
    int n = 0;
    for (const std::string& id : this->waiting()) {
      ++n;
      if (const LivePtr& j = live_.at(id); !j->listeners.empty()) waiting.emplace_back(j, n);
    }
  }
  for (const auto& [job, n] : waiting) {
    Event e;
    e.type = "queued";
    e.data = {{"position", n}, {"eta_seconds", seconds_per_job_ * n}};
    emit(job, std::move(e));
  }
}

bool Jobs::hear(const Update& u) {
  LivePtr job = find(u.id);
  if (!job && (u.kind == Update::Kind::running || u.kind == Update::Kind::ended)) {
    if (u.kind == Update::Kind::ended && store_late(u.id)) return true;
    job = revived(u);
  }
  if (!job || job->task) return true;  // ended long ago, or never ours
  switch (u.kind) {
    case Update::Kind::running: started(job, u); break;
    case Update::Kind::progress: progress(job, u); break;
    case Update::Kind::preview: preview(job, u); break;
    case Update::Kind::picture: picture(job, u); break;
    case Update::Kind::given_back: given_back(job); break;
    case Update::Kind::ended: return ended(job, u);
  }
  return true;
}

/// An end that the database did not take the last time.
bool Jobs::store_late(const std::string& id) {
  JobView view;
  {
    const std::lock_guard lock(mutex_);
    const auto it = unstored_.find(id);
    if (it == unstored_.end()) return false;
    view = it->second;
  }
  if (!store_.finish(view.record, view.pictures)) return false;
  const std::lock_guard lock(mutex_);
  unstored_.erase(id);
  return true;
}

/// A dead job that an operator put back into the queue lives again here.
LivePtr Jobs::revived(const Update& u) {
  auto record = store_.find(u.id);
  const bool was_dead = record && record->status == Status::failed && record->error_code == "interrupted";
  if (!was_dead || (u.kind == Update::Kind::ended && u.outcome.code == "interrupted")) return nullptr;
  auto job = std::make_shared<LiveJob>();
  job->record = std::move(*record);
  job->record.status = Status::queued;
  job->record.error_code.clear(), job->record.error_message.clear();
  job->images = job->record.spec.images();
  job->sent = true;
  (void)store_.requeue(job->record.id);
  log_event(log::Level::info, "job was replayed", trace_fields(job->record, "job-replayed"));
  const std::lock_guard lock(mutex_);
  return live_.emplace(job->record.id, job).first->second;
}

void Jobs::started(const LivePtr& job, const Update& u) {
  double waited = 0;
  {
    const std::lock_guard lock(mutex_);
    if (job->out) return;
    job->record.status = Status::running;
    job->record.started = now_seconds();
    ++job->record.attempts;
    waited = job->record.started - job->record.created;
  }
  if (u.together > 0) metrics_.batch(u.together);
  metrics_.queue_wait(waited);
  log_started(job->record.trace_id, job->record.id, waited);
  if (auto r = store_.start(job->record.id, job->record.started); !r)
    log_event(log::Level::error, r.error().message, trace_fields(job->record, "job-start-not-stored"));
  if (job->preview_listeners > 0) queue_.want_previews(job->record.id, true);
  Event e;
  e.type = "running";
  emit(job, std::move(e));
  tell_positions();
}

void Jobs::given_back(const LivePtr& job) {
  {
    const std::lock_guard lock(mutex_);
    if (job->out) return;
    job->record.status = Status::queued;
    job->stage.clear(), job->step = 0;
  }
  (void)store_.requeue(job->record.id);
  tell_positions();
}

void Jobs::progress(const LivePtr& job, const Update& u) {
  const double now = now_seconds();
  const bool denoise = u.stage == name(Stage::denoise);
  if (denoise && u.seconds_per_step > 0) metrics_.step(u.seconds_per_step);
  Event e;
  {
    const std::lock_guard lock(mutex_);
    if (job->out) return;
    job->record.status = Status::running;  // a server that was away missed the start
    const bool new_stage = u.stage != job->stage;
    job->stage = u.stage;
    job->step = u.step;
    job->steps = u.steps;
    if (u.alone) {
      job->image = u.image;
      job->images = std::max(job->images, u.images);
    }
    if (u.seconds_per_step > 0) job->seconds_per_step = u.seconds_per_step;
    if (job->listeners.empty()) return;
    const bool counts = new_stage || u.step == u.steps;
    if (!counts && (events_.waiting() > kOutboxFull || (!denoise && now - job->last_event < 0.1))) return;
    job->last_event = now;
    e.type = new_stage ? "stage" : "step";
    e.data = progress_json(*job);
  }
  emit(job, std::move(e));
}

void Jobs::preview(const LivePtr& job, const Update& u) {
  if (events_.waiting() > kOutboxFull || job->preview_listeners <= 0) return;
  Event e;
  e.type = "preview";
  e.image = u.n;
  e.data = {{"image", u.n}, {"step", u.step + 1}};
  e.preview = u.preview;
  emit(job, std::move(e));
}

void Jobs::picture(const LivePtr& job, const Update& u) {
  if (job->out) return;
  const Picture& p = u.picture;
  {
    const std::lock_guard lock(mutex_);
    if (std::any_of(job->pictures.begin(), job->pictures.end(), [&](const Picture& k) { return k.n == p.n; })) return;
  }
  const auto written = store_.write_picture(job->record.id, p.n, u.bytes, u.thumbnail);
  {
    const std::lock_guard lock(mutex_);
    if (!written) {
      job->notes.push_back("the picture cannot be stored and will be gone soon: " + written.error().message);
      if (unsaved_bytes_ + u.bytes.size() > kMaxUnsaved) unsaved_.clear(), unsaved_bytes_ = 0;
      unsaved_bytes_ += u.bytes.size();
      unsaved_[{job->record.id, p.n}] = u.bytes;
    }
    job->pictures.push_back(p);
  }
  if (!written) log_event(log::Level::error, written.error().message, trace_fields(job->record, "picture-not-stored"));
  Event e;
  e.type = "image";
  e.data = {{"image", p.n}};
  emit(job, std::move(e));
}

bool Jobs::ended(const LivePtr& job, const Update& u) {
  const Outcome& o = u.outcome;
  for (const std::string& n : o.notes) note(job, n);
  {
    const std::lock_guard lock(mutex_);
    if (job->out) return true;
    if (job->record.started == 0) job->record.started = now_seconds();
  }
  return close(job, o.status, o.code, o.message, o.timing);
}

}  // namespace danqing::server
