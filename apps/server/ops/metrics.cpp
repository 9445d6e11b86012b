#include "server/ops/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <filesystem>

namespace danqing::server {
namespace {
using namespace prometheus;
const Histogram::BucketBoundaries kSeconds{0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3600};
}  // namespace

struct Metrics::Impl {
  Registry registry;
  Family<Counter>& requests =
      BuildCounter().Name("danqing_http_requests_total").Help("Answered requests").Register(registry);
  Family<Counter>& jobs =
      BuildCounter().Name("danqing_jobs_total").Help("Finished jobs by status and reason").Register(registry);
  Counter& pictures = BuildCounter().Name("danqing_pictures_total").Help("Pictures drawn").Register(registry).Add({});
  Histogram& request_seconds = histogram("danqing_http_request_seconds", "Time to answer a request");
  Histogram& wait_seconds = histogram("danqing_queue_wait_seconds", "Time from acceptance to start");
  Histogram& step_seconds = histogram("danqing_step_seconds", "Time of a denoising step");
  Histogram& picture_seconds = histogram("danqing_picture_seconds", "Time of a job per picture");
  Histogram& batch_size = BuildHistogram()
                              .Name("danqing_batch_pictures")
                              .Help("Pictures drawn in one run")
                              .Register(registry)
                              .Add({}, Histogram::BucketBoundaries{1, 2, 4, 8, 16, 32, 64});

  Histogram& histogram(const char* name, const char* help) {
    return BuildHistogram().Name(name).Help(help).Register(registry).Add({}, kSeconds);
  }
  std::string directory;

  void gauge(const char* name, const char* help, double value) {
    BuildGauge().Name(name).Help(help).Register(registry).Add({}).Set(value);
  }
};

Metrics::Metrics() : impl_(std::make_unique<Impl>()) {}
Metrics::~Metrics() = default;

void Metrics::request(const std::string& route, int status, double seconds) {
  impl_->requests.Add({{"route", route}, {"status", std::to_string(status)}}).Increment();
  impl_->request_seconds.Observe(seconds);
}
void Metrics::job_finished(const std::string& status, const std::string& reason) {
  impl_->jobs.Add({{"status", status}, {"reason", reason}}).Increment();
}
void Metrics::queue_wait(double seconds) { impl_->wait_seconds.Observe(seconds); }
void Metrics::step(double seconds) { impl_->step_seconds.Observe(seconds); }
void Metrics::picture(double seconds) {
  impl_->pictures.Increment();
  impl_->picture_seconds.Observe(seconds);
}
void Metrics::batch(int pictures) { impl_->batch_size.Observe(pictures); }
void Metrics::disk(const std::string& directory) { impl_->directory = directory; }

std::string Metrics::text(const Now& n) {
  Impl& i = *impl_;
  i.gauge("danqing_jobs_queued", "Jobs that wait", n.queued);
  i.gauge("danqing_jobs_running", "Jobs being drawn", n.running);
  i.gauge("danqing_http_connections", "Open connections", n.connections);
  i.gauge("danqing_models_loaded", "Models whose weights are loaded", n.loaded_models);
  i.gauge("danqing_device_memory_used_bytes", "Device memory taken by the engine", n.device_allocated);
  i.gauge("danqing_device_memory_peak_bytes", "Most device memory taken so far", n.device_peak);
  i.gauge("danqing_device_memory_total_bytes", "Memory of the device", n.device_total);
  i.gauge("danqing_device_memory_predicted_bytes", "Weights of the loaded models", n.predicted);
  i.gauge("danqing_process_resident_bytes", "Host memory of the process", n.host_memory);
  i.gauge("danqing_store_picture_bytes", "Pictures on disk", n.picture_bytes);
  std::error_code ec;
  const auto room = std::filesystem::space(i.directory, ec);
  if (!ec) {
    i.gauge("danqing_store_disk_free_bytes", "Room where jobs and pictures are kept",
            static_cast<double>(room.available));
    i.gauge("danqing_store_disk_total_bytes", "Size of that file system", static_cast<double>(room.capacity));
  }
  return TextSerializer().Serialize(i.registry.Collect());
}

}  // namespace danqing::server
