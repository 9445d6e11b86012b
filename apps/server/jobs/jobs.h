// The life of every job: accepted, waiting, running, told about, finished. Between the HTTP threads, the queue (behind
// which somebody draws) and the database. Thread-safe; nothing here computes.
#pragma once
#include <map>
#include <memory>
#include <mutex>

#include "server/api/error.h"
#include "server/config/config.h"
#include "server/jobs/store.h"
#include "server/ops/metrics.h"
#include "server/ops/task_thread.h"
#include "server/queue/job_queue.h"

namespace danqing::server {

/// Something that happened to a job, for those who listen.
struct Event {
  std::string type;  ///< queued, running, stage, step, preview, image, text, done, failed, cancelled
  Json data;
  std::shared_ptr<const Image> preview;  ///< type preview
  int image = 0;                         ///< preview: which picture
  bool final = false;
};
/// Called on the events thread, in order. Must not block for long.
using Listener = std::function<void(const Event&)>;

/// Everything that may be shown of a job.
struct JobView {
  JobRecord record;
  std::vector<Picture> pictures;
  Json progress;     ///< null unless queued or running
  int position = 0;  ///< queued: 1 = next
};

/// A job that is queued or running.
struct LiveJob {
  JobRecord record;
  /// A task in place of a job: runs on the inference thread, is not stored (POST /v1/enhance).
  std::function<void(LiveJob&)> task;
  std::atomic<bool> out{false};  ///< finished in the eyes of the user: cancelled, or past its deadline
  std::atomic<int> preview_listeners{0};
  bool held = false;                 ///< waits for the external enhancer
  bool sent = false;                 ///< the queue has it
  std::vector<std::string> revised;  ///< what an enhancer made of the prompts; empty = as given
  std::vector<std::string> notes;
  double deadline = 0;
  // How far it is; guarded by Jobs' mutex.
  std::string stage;
  int step = 0, steps = 0, image = 0, images = 0;
  double seconds_per_step = 0, last_event = 0;
  std::map<int, Listener> listeners;
  std::vector<Picture> pictures;
};
using LivePtr = std::shared_ptr<LiveJob>;

class Jobs {
 public:
  struct Hooks {
    /// The size class of a job (size_class_of with the model's defaults).
    std::function<std::string(const JobSpec&)> size_class;
    /// Runs a task on the inference thread; empty: this server has none.
    std::function<void(std::function<void()>)> run_task;
  };
  Jobs(const Config& config, Store& store, Metrics& metrics, JobQueue& queue, Hooks hooks);
  ~Jobs() { stop(); }

  /// Takes up what an earlier process left, and listens to the queue.
  void recover(const std::function<void(LivePtr)>& prepare);

  struct Submission {
    JobRecord record;
    bool existed = false;  ///< the idempotency key was known: this is the job of then
  };
  /// `prepare` runs before the job can be taken; may set `held`. Errors: 422 (key used for another request), 429 (queue
  /// full), 503 (stopping), 507 (cannot be stored).
  Api<Submission> submit(JobRecord record, const std::function<void(LivePtr)>& prepare);
  Api<LivePtr> submit_task(const Caller& caller, const std::string& trace_id, std::function<void(LiveJob&)> task);
  void release(const LivePtr& job);  ///< no longer held

  bool may_see(const Caller& caller, const JobRecord& record) const {
    return caller.admin || caller.name == record.key;
  }
  std::optional<JobView> view(const std::string& id);
  /// Ends it in the eyes of the user at once. False if it had ended before.
  bool cancel(const std::string& id, const std::string& code = "cancelled", const std::string& message = "");
  /// Hears everything from now on, first a snapshot. 0: the job is not live any more (look at `view`).
  int subscribe(const std::string& id, bool previews, Listener listener);
  void unsubscribe(const std::string& id, int token, bool previews);
  /// A picture whose file could not be written is kept in memory for a while.
  Result<std::string> picture_bytes(const std::string& job, int n);

  void note(const LivePtr& job, const std::string& note);  ///< once each

  /// Once a second: deadlines, and what the queue could not be told.
  void tick();
  void drain();  ///< no new jobs
  void stop();
  bool draining() const { return draining_; }
  size_t queued() const;
  size_t running() const;
  size_t outbox() const { return events_.waiting(); }
  /// Live jobs, running ones first, then in the order of the queue.
  std::vector<JobView> active(const Caller& caller);
  Store& store() { return store_; }
  TaskThreads& events() { return events_; }

 private:
  void enqueue(const LivePtr& job);
  void tell_queue(const LivePtr& job, const Outcome& how);
  LivePtr find(const std::string& id) const;
  /// Ids of live jobs that wait, the next one first. mutex_ is held.
  std::vector<std::string> waiting() const;
  int position(const std::string& id) const;
  LivePtr revived(const Update& update);
  bool hear(const Update& update);  ///< what the queue tells
  void started(const LivePtr& job, const Update& update);
  void progress(const LivePtr& job, const Update& update);
  void preview(const LivePtr& job, const Update& update);
  void picture(const LivePtr& job, const Update& update);
  bool ended(const LivePtr& job, const Update& update);
  void given_back(const LivePtr& job);
  bool store_late(const std::string& id);
  void emit(const LivePtr& job, Event event);
  Json progress_json(const LiveJob& job) const;
  void wish_previews(const LivePtr& job);
  void tell_positions();
  /// False: it had ended, or its end could not be stored.
  bool close(const LivePtr& job, Status status, const std::string& code, const std::string& message,
             const Json& timing);
  void log_end(const LiveJob& job) const;
  double eta(const LiveJob& job) const;

  const Config& config_;
  Store& store_;
  Metrics& metrics_;
  JobQueue& queue_;
  const Hooks hooks_;
  mutable std::mutex mutex_;
  std::map<std::string, LivePtr> live_;
  std::map<std::pair<std::string, int>, std::string> unsaved_;
  size_t unsaved_bytes_ = 0;
  std::map<std::string, JobView> unstored_;                    ///< jobs whose end the database did not take
  std::map<std::string, std::pair<LivePtr, Outcome>> untold_;  ///< cancelled, and the queue does not know yet
  int next_token_ = 1;
  double seconds_per_job_ = 0;
  std::atomic<bool> draining_{false};
  TaskThreads events_{1};
};

}  // namespace danqing::server
