// The inference thread: takes jobs, draws them, tells Jobs. The only thread that computes.
#pragma once
#include <atomic>
#include <thread>

#include "server/engine/enhancer.h"

namespace danqing::server {

class Worker {
 public:
  Worker(const Config& config, Models& models, Jobs& jobs, Enhancer& enhancer);
  ~Worker() { join(); }
  void start();
  /// The run in progress ends within a step; its jobs go back to the queue.
  void interrupt() { interrupted_ = true; }
  void join();
  bool ready() const { return ready_; }  ///< the first model is loaded
  /// Empty while the device works.
  std::string trouble() const;
  bool busy() const { return busy_; }

 private:
  void loop();
  void warm_up();
  void run(const std::vector<LivePtr>& batch);
  void draw(const std::vector<LivePtr>& batch, Engine& engine);
  std::string energy_card() const;
  void set_trouble(const std::string& text);
  const Config& config_;
  Models& models_;
  Jobs& jobs_;
  Enhancer& enhancer_;
  std::thread thread_;
  std::atomic<bool> interrupted_{false}, ready_{false}, busy_{false};
  mutable std::mutex mutex_;
  std::string trouble_;
};

}  // namespace danqing::server
