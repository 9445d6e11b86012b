// What the API handlers share: the parts of the running server.
#pragma once
#include <chrono>
#include <mutex>

#include "server/api/fields.h"
#include "server/auth/keys.h"
#include "server/engine/worker.h"
#include "server/http/http_server.h"
#include "server/http/router.h"
#include "server/ops/monitor.h"

namespace danqing::server {

struct App {
  Config config;
  uint64_t max_pixels = 0;
  ApiKeys keys;
  std::unique_ptr<Store> store;
  std::unique_ptr<Models> models;
  Metrics metrics;
  std::unique_ptr<JobQueue> queue;
  std::unique_ptr<Jobs> jobs;
  std::unique_ptr<Enhancer> enhancer;
  std::unique_ptr<Worker> worker;
  Monitor monitor;
  Router router;
  std::unique_ptr<TaskThreads> pool;  ///< HTTP handlers that touch the disk or wait for a lock
  std::unique_ptr<HttpServer> http;
  std::atomic<bool> stopping{false};

  // Streams that want a sign of life now and then.
  std::mutex streams_mutex;
  std::vector<std::weak_ptr<Exchange>> streams;
  void keep_alive(const ExchangePtr& e) {
    const std::lock_guard lock(streams_mutex);
    streams.push_back(e);
  }
};

// One function a family of routes.
void add_native(App& app);
void add_openai(App& app);
void add_a1111(App& app);
void add_operations(App& app);  ///< health, metrics, system
void add_page(App& app);        ///< the web page and openapi.json
/// The I/O thread's entry: identity, limits, route.
void dispatch(App& app, const ExchangePtr& exchange);

// Shared by the families.
/// Checks a job against the server's limits and the model, draws the seeds that are not given. 422, 413, 404.
Api<JobRecord> admit(App& app, const Request& request, JobSpec spec);
std::string sse(const std::string& event, const Json& data);
Json job_json(App& app, const JobView& view);
Json picture_json(App& app, const Picture& p);
std::string picture_url(App& app, const std::string& job, int n, const std::string& extension);
bool good_signature(App& app, const Request& request, const std::string& job, int n);
std::string signature(App& app, const std::string& job, int n);
/// Calls `done` on the pool with the finished job; cancels the job if the client goes away first.
void wait_for_job(App& app, const ExchangePtr& exchange, const std::string& id,
                  std::function<void(const JobView&)> done);
/// The picture in the wanted format: as stored, or decoded and encoded again with its settings.
Result<std::string> picture_as(App& app, const std::string& job, int n, ImageFormat format, std::optional<int> quality);
std::string_view mime_type(ImageFormat format);
/// The answer for a job that did not end well.
ApiError job_error(const JobView& view);

}  // namespace danqing::server
