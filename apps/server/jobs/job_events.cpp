// What is told about jobs while they wait and run: to listeners, and the finished pictures to the disk. All on the
// events thread, in order.
#include <algorithm>
#include <cmath>

#include "base/try.h"
#include "image/convert.h"
#include "server/jobs/job_log.h"
#include "server/jobs/jobs.h"
#include "server/jobs/trace.h"

namespace danqing::server {
namespace {

constexpr int kThumbnail = 320;
constexpr size_t kOutboxFull = 256;  // events that wait; beyond it only those that count are made
constexpr size_t kMaxUnsaved = 64u << 20;

Result<std::string> thumbnail(const Image& image) {
  const double scale = std::min(1.0, static_cast<double>(kThumbnail) / std::max(image.width, image.height));
  DQ_TRY(const Image small, resize_image(image, std::max(1, static_cast<int>(std::lround(image.width * scale))),
                                         std::max(1, static_cast<int>(std::lround(image.height * scale)))));
  return encode_image(small, ImageFormat::webp, {}, {80});
}

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
  if (previews) ++job->preview_listeners;
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
  if (previews) --job->preview_listeners;
  events_.post([this, job, token] {
    const std::lock_guard lock(mutex_);
    job->listeners.erase(token);
  });
}

void Jobs::tell_positions() {
  std::vector<std::pair<LivePtr, int>> waiting;
  {
    const std::lock_guard lock(mutex_);
    int n = 0;
    for (const QueueEntry& e : queue_.order()) {
      ++n;
      if (const auto it = live_.find(e.id); it != live_.end() && !it->second->listeners.empty())
        waiting.emplace_back(it->second, n);
    }
  }
  for (const auto& [job, n] : waiting) {
    Event e;
    e.type = "queued";
    e.data = {{"position", n}, {"eta_seconds", seconds_per_job_ * n}};
    emit(job, std::move(e));
  }
}

void Jobs::progress(const std::vector<LivePtr>& batch, const ProgressEvent& p) {
  const double now = now_seconds();
  if (p.stage == Stage::denoise && p.seconds_per_step > 0) metrics_.step(p.seconds_per_step);
  for (const LivePtr& job : batch) {
    log_progress(job->record.trace_id, job->record.id, p, name(p.stage) != job->stage);
    Event e;
    {
      const std::lock_guard lock(mutex_);
      const std::string stage(name(p.stage));
      const bool new_stage = stage != job->stage;
      job->stage = stage;
      job->step = p.step;
      job->steps = p.steps;
      if (batch.size() == 1) {
        job->image = p.image;
        job->images = std::max(job->images, p.images);
      }
      if (p.seconds_per_step > 0) job->seconds_per_step = p.seconds_per_step;
      if (job->listeners.empty()) continue;
      const bool counts = new_stage || p.step == p.steps;
      if (!counts && (events_.waiting() > kOutboxFull || (p.stage != Stage::denoise && now - job->last_event < 0.1)))
        continue;
      job->last_event = now;
      e.type = new_stage ? "stage" : "step";
      e.data = progress_json(*job);
    }
    emit(job, std::move(e));
  }
}

void Jobs::preview(const LivePtr& job, int n, int step, const Image& image) {
  if (events_.waiting() > kOutboxFull) return;
  Event e;
  e.type = "preview";
  e.image = n;
  e.data = {{"image", n}, {"step", step + 1}};
  e.preview = std::make_shared<const Image>(image);
  emit(job, std::move(e));
}

void Jobs::text(const LivePtr& job, const std::string& text) {
  Event e;
  e.type = "text";
  e.data = {{"text", text}};
  emit(job, std::move(e));
}

void Jobs::image(const LivePtr& job, int n, const GeneratedImage& g, const std::string& model) {
  events_.post([this, job, n, g, model] {
    if (job->out) return;
    const OutputOptions& o = job->record.spec.output;
    ImageMetadata metadata = g.metadata;
    auto settings = parse_json(metadata["danqing"], "settings");
    Json s = settings ? *settings : Json::object();
    s["index"] = n;  // of the job, not of the run that it shared
    s["model"] = model;
    metadata["danqing"] = dump_json(s);
    auto bytes = encode_image(g.image, o.format, metadata, {o.quality});
    auto thumb = thumbnail(g.image);
    if (!bytes || !thumb) {
      const std::lock_guard lock(mutex_);
      job->notes.push_back((!bytes ? bytes : thumb).error().message);
      return;
    }
    Picture p{job->record.id, 0, n, g.seed, g.image.width, g.image.height, bytes->size(), now_seconds(), model, s};
    const auto written = store_.write_picture(job->record.id, n, *bytes, *thumb);
    {
      const std::lock_guard lock(mutex_);
      if (!written) {
        job->notes.push_back("the picture cannot be stored and will be gone soon: " + written.error().message);
        if (unsaved_bytes_ + bytes->size() > kMaxUnsaved) unsaved_.clear(), unsaved_bytes_ = 0;
        unsaved_bytes_ += bytes->size();
        unsaved_[{job->record.id, n}] = std::move(*bytes);
      }
      job->pictures.push_back(p);
    }
    if (!written)
      log_event(log::Level::error, written.error().message, trace_fields(job->record, "picture-not-stored"));
    Event e;
    e.type = "image";
    e.data = {{"image", n}};
    emit(job, std::move(e));
  });
}

}  // namespace danqing::server
