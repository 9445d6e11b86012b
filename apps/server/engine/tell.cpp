// What the inference thread tells the queue: through the outbox, in order, so that drawing does not wait for it.
#include <algorithm>
#include <cmath>

#include "base/try.h"
#include "doctor/explain.h"
#include "image/convert.h"
#include "server/engine/running.h"
#include "server/jobs/job_log.h"
#include "server/ops/ecs_log.h"

namespace danqing::server {
namespace {

using namespace std::chrono_literals;
constexpr int kThumbnail = 320;
constexpr size_t kOutboxFull = 256;  // messages that wait; beyond it only those that count are made

Result<std::string> thumbnail(const Image& image) {
  const double scale = std::min(1.0, static_cast<double>(kThumbnail) / std::max(image.width, image.height));
  DQ_TRY(const Image small, resize_image(image, std::max(1, static_cast<int>(std::lround(image.width * scale))),
                                         std::max(1, static_cast<int>(std::lround(image.height * scale)))));
  return encode_image(small, ImageFormat::webp, {}, {80});
}

/// The picture's file, its small copy and what the gallery knows of it.
Result<void> encode(const Ticket& t, int n, const GeneratedImage& g, Update& u) {
  const OutputOptions& o = t.spec.output;
  ImageMetadata metadata = g.metadata;
  auto settings = parse_json(metadata["danqing"], "settings");
  Json s = settings ? *settings : Json::object();
  s["index"] = n;  // of the job, not of the run that it shared
  s["model"] = t.spec.model;
  metadata["danqing"] = dump_json(s);
  DQ_TRY(u.bytes, encode_image(g.image, o.format, metadata, {o.quality}));
  DQ_TRY(u.thumbnail, thumbnail(g.image));
  u.picture = {t.id, 0, n, g.seed, g.image.width, g.image.height, u.bytes.size(), now_seconds(), t.spec.model, s};
  return {};
}

const char* code_of(const Error& e) {
  return e.code == ErrorCode::does_not_fit  ? "does_not_fit"
         : e.code == ErrorCode::device_lost ? "device_lost"
         : e.code == ErrorCode::usage       ? "invalid_value"
         : e.code == ErrorCode::cancelled   ? "deadline_exceeded"
                                            : "failed";
}

}  // namespace

void Worker::post_out(std::function<void()> task) {
  outbox_.post([this, task = std::move(task)] {
    telling_ = true;
    task();
    telling_ = false;
  });
}

void Worker::progress(const std::vector<RunningPtr>& batch, const ProgressEvent& p) {
  const double now = now_seconds();
  const std::string stage(name(p.stage));
  for (const RunningPtr& j : batch) {
    const bool new_stage = stage != j->stage;
    j->stage = stage;
    log_progress(j->ticket().trace_id, j->ticket().id, p, new_stage);
    const bool counts = new_stage || p.step == p.steps;
    if (!counts && (outbox_.waiting() > kOutboxFull || (p.stage != Stage::denoise && now - j->last_told < 0.1)))
      continue;
    j->last_told = now;
    Update u = j->update(Update::Kind::progress, options_.name);
    u.stage = stage;
    u.step = p.step, u.steps = p.steps;
    u.image = p.image, u.images = p.images;
    u.seconds_per_step = p.seconds_per_step;
    u.alone = batch.size() == 1;
    post_out([this, j, u] { queue_.tell(j->lease, u); });
  }
}

void Worker::preview(const RunningPtr& job, int n, int step, const Image& image) {
  if (outbox_.waiting() > kOutboxFull) return;
  Update u = job->update(Update::Kind::preview, options_.name);
  u.n = n, u.step = step;
  u.preview = std::make_shared<const Image>(image);
  post_out([this, job, u] { queue_.tell(job->lease, u); });
}

void Worker::image(const RunningPtr& job, int n, const GeneratedImage& g) {
  post_out([this, job, n, g] {
    if (job->cancelled()) return;
    Update u = job->update(Update::Kind::picture, options_.name);
    if (const auto made = encode(job->ticket(), n, g, u); !made) {
      job->notes.push_back(made.error().message);
      return;
    }
    if (until_told([&] { return queue_.keep(job->lease, u); }, job->ticket())) job->pictures.push_back(u.picture);
  });
}

// A queue that is away for a while is waited for; the keeper goes on trying to hold the lease.
bool Worker::until_told(const std::function<Result<void>()>& tell, const Ticket& t) {
  bool said = false;
  for (;;) {
    const auto told = tell();
    if (told) return true;
    if (!said)
      log_event(log::Level::warning, told.error().message + (options_.shared ? "; trying again" : ""),
                {{"trace.id", t.trace_id}, {"event.action", "queue-not-told"}, {"danqing.job.id", t.id}});
    said = true;
    if (!options_.shared || interrupted_) return false;
    std::this_thread::sleep_for(300ms);
  }
}

void Worker::finish(const RunningPtr& job, const std::optional<Error>& error, const Json& timing) {
  post_out([this, job, error, timing] {
    Outcome o;
    o.worker = options_.name;
    o.notes = job->notes;
    o.timing = timing.is_null() ? Json::object() : timing;
    o.pictures = job->pictures;
    if (error) {
      o.status = Status::failed;
      o.code = code_of(*error);
      const std::string cause = doctor::likely_cause(*error);
      o.message = cause.empty() ? error->message : error->message + "; " + cause;
    }
    bool first = true;
    const bool told = until_told(
        [&]() -> Result<void> {
          DQ_TRY(first, queue_.finish(job->lease, o));
          return {};
        },
        job->ticket());
    if (!told) ++untold_;
    if (options_.shared)
      log_event(o.status == Status::done ? log::Level::info : log::Level::warning,
                !told   ? "job done, and nobody could be told"
                : first ? "job " + std::string(name(o.status))
                        : "job had ended elsewhere",
                {{"trace.id", job->ticket().trace_id},
                 {"event.action", "job-finished"},
                 {"event.outcome", o.status == Status::done ? "success" : "failure"},
                 {"event.duration", static_cast<int64_t>((now_seconds() - job->started) * 1e9)},
                 {"danqing.job.id", job->ticket().id},
                 {"danqing.worker", options_.name}});
    const std::lock_guard lock(mutex_);
    leased_.remove(job);
  });
}

void Worker::give_back(const RunningPtr& job, bool counts) {
  post_out([this, job, counts] {
    (void)until_told([&] { return queue_.give_back(job->lease, counts); }, job->ticket());
    const std::lock_guard lock(mutex_);
    leased_.remove(job);
  });
}

}  // namespace danqing::server
