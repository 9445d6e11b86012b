#include "server/work.h"

#include <cstdio>

#include "base/try.h"
#include "server/engine/worker.h"
#include "server/ops/ecs_log.h"
#include "server/ops/notify.h"
#include "server/ops/process.h"
#include "server/queue/open_queue.h"

namespace danqing::server {
namespace {

std::string lanes_text(const std::vector<Want::Lane>& lanes) {
  std::string out;
  for (const Want::Lane& l : lanes) out += (out.empty() ? "" : ", ") + l.model + " " + l.size_class;
  return out;
}

/// Until a signal, or until there is no point in going on.
void watch(const Worker& worker, const JobQueue& queue, const sigset_t& signals) {
  const double watchdog = watchdog_seconds();
  double next_watchdog = 0;
  while (!worker.device_lost() && !queue.refused()) {
    const timespec moment{0, 200'000'000};
    const int signal = sigtimedwait(&signals, nullptr, &moment);
    if (signal == SIGTERM || signal == SIGINT) return;
    const double now = now_seconds();
    if (watchdog > 0 && now >= next_watchdog) notify("WATCHDOG=1"), next_watchdog = now + watchdog / 2;
  }
}

/// The running job may end within `seconds`; then, or when asked twice, it is given back.
void drain(Worker& worker, const JobQueue& queue, double seconds, const sigset_t& signals) {
  notify("STOPPING=1");
  log_event(log::Level::info, "stopping: the running job may end", {{"event.action", "drain"}});
  worker.drain();
  const double until = now_seconds() + seconds;
  while (worker.busy() && now_seconds() < until && !queue.refused()) {
    const timespec moment{0, 50'000'000};
    const int again = sigtimedwait(&signals, nullptr, &moment);
    if (again == SIGTERM || again == SIGINT) break;
  }
  worker.interrupt();
  worker.join();
}

}  // namespace

Result<int> work(const Config& config) {
  configure_log(config);
  if (config.queue.empty()) return usage_error("[worker] expected --queue nats://HOST:PORT: where jobs come from");
  const sigset_t signals = block_signals();
  DQ_TRY(const std::unique_ptr<Models> models, Models::open(config));
  Worker::Options o;
  o.name = worker_name(config);
  o.shared = true;
  o.lanes = wanted_lanes(config, *models);
  if (o.lanes.empty())
    return fail(ErrorCode::does_not_fit,
                "[worker] this device cannot hold the smallest jobs of its models (danqing plan says why)");
  DQ_TRY(const std::unique_ptr<JobQueue> queue, open_queue(config, "", ""));
  Enhancer enhancer(config, nullptr);
  Worker worker(config, *models, *queue, enhancer, o);
  worker.start();
  log_event(log::Level::info, fmt::format("worker {} takes {}", o.name, lanes_text(o.lanes)),
            {{"event.action", "started"}, {"danqing.worker", o.name}});
  notify("READY=1");
  watch(worker, *queue, signals);
  const std::string refusal = queue->refused() ? queue->trouble() : "";
  drain(worker, *queue, config.drain_seconds, signals);
  enhancer.stop();
  log_event(log::Level::info, "stopped", {{"event.action", "stopped"}, {"danqing.worker", o.name}});
  if (!refusal.empty()) return fail(ErrorCode::failed, "{}", refusal);
  if (worker.device_lost()) return fail(ErrorCode::device_lost, "{}", worker.trouble());
  return worker.untold() > 0 ? 1 : 0;
}

}  // namespace danqing::server
