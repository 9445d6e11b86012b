#include "server/serve.h"

#include <algorithm>
#include <csignal>
#include <cstdio>

#include "base/try.h"
#include "base/units.h"
#include "device/pci.h"
#include "server/api/app.h"
#include "server/auth/crypto.h"
#include "server/ops/ecs_log.h"
#include "server/ops/notify.h"
#include "server/ops/process.h"
#include "server/queue/open_queue.h"

namespace danqing::server {
namespace {

bool is_loopback(const std::string& host) { return host.rfind("127.", 0) == 0 || host == "::1"; }

void ping_streams(App& app) {
  const std::lock_guard lock(app.streams_mutex);
  std::erase_if(app.streams, [](const std::weak_ptr<Exchange>& w) {
    const ExchangePtr e = w.lock();
    if (!e || e->closed()) return true;
    e->write(": still here\n\n", true);
    return false;
  });
}

void reload_keys(App& app) {
  if (app.config.api_key_file.empty()) return;
  const auto r = app.keys.load(app.config.api_key_file);
  if (r)
    log_event(log::Level::info, "API keys reloaded", {{"event.action", "keys-reloaded"}});
  else
    log_event(log::Level::error, r.error().message + "; the old keys stay", {{"event.action", "keys-not-reloaded"}});
}

Result<void> expire(App& app) {
  const double days = app.config.keep_days;
  DQ_TRY(const uint64_t bytes, parse_bytes(app.config.keep_bytes));
  if (days <= 0 && bytes == 0) return {};
  const int gone = app.store->expire(days > 0 ? now_seconds() - days * 86400 : 0, bytes);
  if (gone > 0)
    log_event(log::Level::info, fmt::format("{} old pictures deleted", gone), {{"event.action", "retention"}});
  return {};
}

/// Until SIGTERM or SIGINT.
void watch(App& app, const sigset_t& signals) {
  double watchdog = watchdog_seconds();
  double next_ping = 0, next_expire = 0, next_sample = 0, next_watchdog = 0;
  for (;;) {
    const timespec second{0, 500'000'000};
    const int signal = sigtimedwait(&signals, nullptr, &second);
    if (signal == SIGTERM || signal == SIGINT) return;
    if (signal == SIGHUP) {
      reload_keys(app);
      app.pool->post([&app] { app.models->reload_all(); });  // takes as long as loading a model
    }
    const double now = now_seconds();
    app.jobs->tick();
    if (now >= next_sample) app.monitor.sample(), next_sample = now + 2;
    if (now >= next_ping) ping_streams(app), next_ping = now + 15;
    if (now >= next_expire) (void)expire(app), next_expire = now + 60;
    if (watchdog > 0 && now >= next_watchdog) notify("WATCHDOG=1"), next_watchdog = now + watchdog / 2;
  }
}

/// The running job ends by itself if it does so in time; what waits is kept for the next start.
int drain(App& app, const sigset_t& signals) {
  app.stopping = true;
  notify("STOPPING=1");
  log_event(log::Level::info, "stopping: the running job may end", {{"event.action", "drain"}});
  app.jobs->drain();
  app.worker->drain();
  app.http->stop_listening();
  const double until = now_seconds() + app.config.drain_seconds;
  while ((app.worker->busy() || app.jobs->outbox() > 0) && now_seconds() < until) {
    const timespec moment{0, 50'000'000};
    const int again = sigtimedwait(&signals, nullptr, &moment);
    if (again == SIGTERM || again == SIGINT) break;  // asked twice: at once
  }
  const bool cut = app.worker->busy();
  app.models->stop();
  app.worker->interrupt();
  app.enhancer->stop();
  app.worker->join();
  app.jobs->stop();
  app.pool->stop();
  app.http->stop();
  log_event(log::Level::info, "stopped", {{"event.action", "stopped"}});
  return cut ? 1 : 0;
}

std::string class_of(const App& app, const JobSpec& spec) {
  const auto engine = app.models->find(spec.model);
  const GenerateRequest& r = spec.request;
  if (!engine) return size_class_of(r.width, r.height);
  const ModelDefaults& d = engine->info().defaults;
  return size_class_of(r.width ? r.width : d.width, r.height ? r.height : d.height);
}

void make_parts(App& app) {
  const bool shared = !app.config.queue.empty();
  Worker::Options o;
  o.computes = !shared || app.config.also_work;
  o.name = worker_name(app.config);
  o.shared = shared;
  if (shared && o.computes) o.lanes = wanted_lanes(app.config, *app.models);
  Jobs::Hooks hooks;
  hooks.size_class = [&app](const JobSpec& spec) { return class_of(app, spec); };
  if (o.computes) hooks.run_task = [&app](std::function<void()> task) { app.worker->post(std::move(task)); };
  app.jobs = std::make_unique<Jobs>(app.config, *app.store, app.metrics, *app.queue, std::move(hooks));
  app.enhancer = std::make_unique<Enhancer>(app.config, app.jobs.get());
  app.worker = std::make_unique<Worker>(app.config, *app.models, *app.queue, *app.enhancer, std::move(o));
}

}  // namespace

Result<int> serve(const Config& config) {
  configure_log(config);
  App app;
  app.config = config;
  DQ_TRY(app.max_pixels, parse_bytes(config.max_pixels));
  if (!config.api_key_file.empty()) DQ_CHECK(app.keys.load(config.api_key_file));
  if (app.keys.open() && !is_loopback(config.host) && !config.allow_public)
    return usage_error(
        "[serve] {} can be reached from outside and there are no keys: give --api-key-file (danqing serve --new-key "
        "NAME makes a key), or --allow-public",
        config.host);
  const sigset_t signals = block_signals();
  raise_file_limit();
  DQ_TRY(app.models, Models::open(config));
  app.store = Store::open(config.data);
  app.metrics.disk(config.data);
  if (!app.store->problem().empty())
    log_event(log::Level::error, app.store->problem(), {{"event.action", "storage-degraded"}});
  DQ_TRY(app.queue, open_queue(app.config, app.store->path(), sha256_hex(app.store->secret()).substr(0, 12)));
  make_parts(app);
  app.pool = std::make_unique<TaskThreads>(config.http_threads);
  add_native(app);
  add_openai(app);
  add_a1111(app);
  add_operations(app);
  add_page(app);
  app.jobs->recover([&](const LivePtr& j) { app.enhancer->prepare(j); });
  HttpLimits limits;
  DQ_TRY(const uint64_t body, parse_bytes(config.max_body));
  limits.body_bytes = static_cast<size_t>(body);
  limits.idle_seconds = config.idle_seconds;
  limits.body_seconds = config.body_seconds;
  limits.write_seconds = config.write_seconds;
  limits.connections = config.max_connections;
  app.monitor.reset({.root = config.sysfs_root, .nvml = {}}, pci_address(app.models->device().name));
  app.monitor.sample();
  DQ_TRY(app.http, HttpServer::start(config.host, static_cast<uint16_t>(config.port), limits,
                                     [&app](ExchangePtr e) { dispatch(app, e); }));
  app.worker->start();
  const std::string host = config.host.find(':') == std::string::npos ? config.host : "[" + config.host + "]";
  std::printf("http://%s:%d\n", host.c_str(), app.http->port());
  std::fflush(stdout);
  log_event(log::Level::info, fmt::format("listening on {}:{}", config.host, app.http->port()),
            {{"event.action", "started"}, {"server.port", app.http->port()}});
  notify("READY=1");
  watch(app, signals);
  return drain(app, signals);
}

}  // namespace danqing::server
