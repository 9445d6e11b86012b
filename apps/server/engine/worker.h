// The inference thread: takes jobs from the queue, draws them, tells the queue. The only thread that computes. The same
// in the server (one machine) and in `danqing worker` (many machines).
#pragma once
#include <atomic>
#include <deque>
#include <list>
#include <thread>

#include "server/engine/enhancer.h"

namespace danqing::server {

/// The lanes that this machine's card can hold: for each model the size classes whose largest picture has a plan.
/// Classes that do not fit are named with the reason in `left_out`.
std::vector<Want::Lane> lanes_that_fit(Models& models, std::vector<std::string>& left_out);

class Worker {
 public:
  struct Options {
    bool computes = true;           ///< false: a server that only accepts; start() does nothing
    std::string name;               ///< in results and logs
    std::vector<Want::Lane> lanes;  ///< empty = anything
    bool shared = false;            ///< others draw from the same queue: a job that loses the device is left to them
  };
  Worker(const Config& config, Models& models, JobQueue& queue, Enhancer& enhancer, Options options);
  ~Worker() { join(); }
  void start();
  void drain();  ///< nothing is taken any more; what runs may end
  /// The run in progress ends within a step; its jobs go back to the queue.
  void interrupt();
  void join();
  /// A task that computes, in turn with the jobs.
  void post(std::function<void()> task);
  bool ready() const { return !options_.computes || ready_; }  ///< the first model is loaded
  /// Empty while the device works and the queue can be reached.
  std::string trouble() const;
  bool busy() const { return busy_ || outbox_.waiting() > 0 || telling_; }
  bool device_lost() const { return lost_; }
  /// Jobs whose end could not be told before `interrupt`.
  int untold() const { return untold_; }

 private:
  struct Running;
  using RunningPtr = std::shared_ptr<Running>;
  void loop();
  void warm_up();
  bool run_task();
  std::vector<Lease> take();
  void run(std::vector<Lease> leases);
  void draw(const std::vector<RunningPtr>& batch, Engine& engine);
  void enhance(const RunningPtr& job, Engine& engine);
  void progress(const std::vector<RunningPtr>& batch, const ProgressEvent& event);
  void preview(const RunningPtr& job, int n, int step, const Image& image);
  void image(const RunningPtr& job, int n, const GeneratedImage& image);
  void finish(const RunningPtr& job, const std::optional<Error>& error, const Json& timing);
  void give_back(const RunningPtr& job, bool counts);
  void post_out(std::function<void()> task);
  bool until_told(const std::function<Result<void>()>& tell, const Ticket& ticket);
  void keep_leases();
  std::string energy_card() const;
  void set_trouble(const std::string& text);

  const Config& config_;
  Models& models_;
  JobQueue& queue_;
  Enhancer& enhancer_;
  const Options options_;
  std::thread thread_, keeper_;
  std::atomic<bool> interrupted_{false}, ready_{false}, busy_{false}, draining_{false}, lost_{false}, telling_{false};
  std::atomic<bool> joined_{false};
  std::atomic<int> untold_{0};
  bool said_away_ = false;  ///< the queue is away, and the log says so
  mutable std::mutex mutex_;
  std::string trouble_;
  std::deque<std::function<void()>> tasks_;
  std::list<RunningPtr> leased_;  ///< not finished and not given back
  TaskThreads outbox_{1};         ///< tells the queue, in order, so that the device does not wait for it
};

}  // namespace danqing::server
