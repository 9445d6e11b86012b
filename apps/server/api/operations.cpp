// /health, /metrics, /v1/system, /v1/admin/models/{id}:reload.
#include "server/api/app.h"
#include "server/ops/ecs_log.h"

namespace danqing::server {
namespace {

void ready(App& app, const ExchangePtr& e) {
  const std::string trouble = app.worker->trouble();
  const bool good = app.worker->ready() && trouble.empty() && !app.stopping;
  Json j{{"status", good                  ? "ready"
                    : app.stopping        ? "stopping"
                    : app.worker->ready() ? "failed"
                                          : "loading"},
         {"device", app.models->device().name},
         {"storage", app.store->problem().empty() ? Json("ok") : Json(app.store->problem())}};
  if (!trouble.empty()) j["error"] = trouble;
  e->respond(json_response(j, good ? 200 : 503));
}

void metrics(App& app, const ExchangePtr& e) {
  const monitor::Snapshot s = app.monitor.last();
  const DeviceStatus d = app.models->device();
  Metrics::Now n;
  n.queued = static_cast<double>(app.jobs->queued());
  n.running = static_cast<double>(app.jobs->running());
  n.connections = app.http->connections();
  for (const ModelState& m : app.models->list())
    if (m.loaded) {
      n.loaded_models += 1;
      n.predicted += static_cast<double>(m.bytes);
    }
  n.device_allocated = static_cast<double>(d.allocated);
  n.device_peak = static_cast<double>(d.peak_allocated);
  n.device_total = static_cast<double>(d.memory_total);
  n.host_memory = static_cast<double>(s.host.process_resident.value_or(0));
  n.picture_bytes = static_cast<double>(app.store->picture_bytes());
  e->respond({200, "text/plain; version=0.0.4; charset=utf-8", app.metrics.text(n) + monitor_metrics(s), {}});
}

void system_state(App& app, const ExchangePtr& e) {
  const DeviceStatus d = app.models->device();
  double since = 0;
  if (const auto it = e->request.query.find("since"); it != e->request.query.end())
    since = std::strtod(it->second.c_str(), nullptr);
  if (!(since >= 0)) since = 0;
  e->respond(json_response({{"version", std::string(version())},
                            {"device",
                             {{"name", d.name},
                              {"description", d.description},
                              {"memory_total", d.memory_total},
                              {"allocated", d.allocated},
                              {"peak", d.peak_allocated}}},
                            {"storage", app.store->problem().empty() ? Json("ok") : Json(app.store->problem())},
                            {"queued", app.jobs->queued()},
                            {"running", app.jobs->running()},
                            {"keys", !app.keys.open()},
                            {"caller", e->request.caller.name},
                            {"admin", e->request.caller.admin},
                            {"enhancer", app.enhancer->external() ? "external" : "model"},
                            {"samples", app.monitor.series(since)}}));
}

void reload_model(App& app, const ExchangePtr& e) {
  const std::string name = app.models->resolve(e->request.params["id"]);
  if (name.empty())
    return e->respond(error_response({404, "model_not_found", "[reload] there is no such model", "id"}));
  const auto r = app.models->reload(name);
  if (!r) {
    ApiError error{422, "model_not_reloaded", r.error().message + "; the old weights keep serving", "id"};
    if (r.error().code == ErrorCode::failed) error.status = 409, error.code = "reload_at_work";
    if (r.error().code == ErrorCode::device_lost) error.status = 503;
    log_event(log::Level::error, error.message, {{"event.action", "model-not-reloaded"}, {"danqing.model", name}});
    return e->respond(error_response(error));
  }
  log_event(log::Level::info, fmt::format("model {} reloaded", name),
            {{"event.action", "model-reloaded"}, {"danqing.model", name}});
  Json j{{"model", name}, {"loaded", r->beside}, {"seconds", r->seconds}, {"queued", app.jobs->queued()}};
  if (!r->commit.empty()) j["commit"] = r->commit;
  e->respond(json_response(j));
}

}  // namespace

void add_operations(App& app) {
  app.router.add({"GET", "/health/live", Access::all,
                  [](const ExchangePtr& e) {
                    e->respond({200, "application/json", R"({"status":"live"})", {}});
                  },
                  true});
  app.router.add({"GET", "/health/ready", Access::all, [&app](const ExchangePtr& e) { ready(app, e); }, false});
  app.router.add({"GET", "/metrics", Access::all, [&app](const ExchangePtr& e) { metrics(app, e); }, false});
  app.router.add({"POST", "/v1/admin/models/{id}:reload", Access::admin,
                  [&app](const ExchangePtr& e) { reload_model(app, e); }, false});
  app.router.add({"GET", "/v1/system", Access::key, [&app](const ExchangePtr& e) { system_state(app, e); }, false});
}

}  // namespace danqing::server
