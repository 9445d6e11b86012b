// What /metrics shows (Prometheus text).
#pragma once
#include <memory>
#include <string>

namespace danqing::server {

/// Thread-safe.
class Metrics {
 public:
  Metrics();
  ~Metrics();
  void request(const std::string& route, int status, double seconds);
  void job_finished(const std::string& status, const std::string& reason);
  void queue_wait(double seconds);
  void step(double seconds);
  void picture(double seconds);
  void batch(int pictures);
  /// The file system of the jobs and pictures, whose room is shown. Before the first text().
  void disk(const std::string& directory);
  /// Values that are read when somebody asks.
  struct Now {
    double queued = 0, running = 0, connections = 0, loaded_models = 0, device_allocated = 0, device_peak = 0,
           device_total = 0, predicted = 0, host_memory = 0, picture_bytes = 0;
  };
  std::string text(const Now& now);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace danqing::server
