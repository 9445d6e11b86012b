// The queue of one machine: rows of the server's own database, the order in memory. API keys take turns; within a key
// priority and age decide. Workers are threads of the same process.
#pragma once
#include <condition_variable>
#include <map>
#include <mutex>

#include "server/jobs/queue.h"
#include "server/jobs/sqlite.h"
#include "server/queue/job_queue.h"

namespace danqing::server {

/// Part of the store's schema too: the store removes a job's row in the transaction that ends the job.
extern const char* const kQueueSchema;

class SqliteQueue : public JobQueue {
 public:
  /// serve: what ran when the process died waits again and has one attempt less. look: beside the process that serves,
  /// for the operator's calls alone.
  enum class Use { serve, look };
  /// `path`: the database, or ":memory:".
  static Result<std::unique_ptr<SqliteQueue>> open(const std::string& path, QueueRules rules, Use use = Use::serve);

  Result<bool> submit(const Ticket& ticket) override;
  Result<void> cancel(const Ticket& ticket, const Outcome& how) override;
  void want_previews(const std::string& id, bool wanted) override;
  Result<void> listen(Listener listener) override;
  std::vector<std::string> order() override;

  Result<std::vector<Lease>> take(const Want& want, double seconds) override;
  void extend(const Lease& lease) override;
  void tell(const Lease& lease, const Update& update) override;
  /// The listener must be there: it stores the picture.
  Result<void> keep(const Lease& lease, const Update& picture) override;
  Result<bool> finish(const Lease& lease, const Outcome& outcome) override;
  Result<void> give_back(const Lease& lease, bool counts = false) override;

  Result<std::vector<DeadJob>> dead(size_t most) override;
  Result<std::optional<DeadJob>> find_dead(const std::string& id) override;
  Result<bool> replay(const std::string& id) override;
  Result<bool> drop(const std::string& id) override;
  Result<QueueStats> stats() override;

  std::string trouble() const override { return ""; }
  void wake() override;
  void stop() override;

 private:
  /// A job that has not ended.
  struct Entry {
    Ticket ticket;
    int attempts = 0;  ///< workers that took it and did not give it back
    bool running = false;
    double expires = 0;
    Json story = Json::array();
    std::shared_ptr<Lease::Flags> flags = std::make_shared<Lease::Flags>();
  };
  explicit SqliteQueue(QueueRules rules) : rules_(rules) {}
  Result<void> load(const char* state);
  void push(const Entry& e);
  Result<void> write(const Entry& e);
  Result<void> row(const char* sql, const std::string& id);
  Result<std::vector<DeadJob>> read_dead(const char* where, const std::string& id, size_t most);
  void note(Entry& e, const char* event) const;
  void expire(double now);
  bool pop(const Want& want, const Ticket* first, int pictures, std::vector<Lease>& out, std::vector<Entry>& hopeless);
  void bury(const Entry& e);
  bool deliver(const Update& update);
  bool holds(const Lease& lease) const;

  const QueueRules rules_;
  std::unique_ptr<Database> db_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool woken_ = false;
  double next_look_ = 0;
  FairQueue waiting_;
  std::map<std::string, Entry> entries_;
  std::recursive_mutex listener_mutex_;
  Listener listener_;
};

}  // namespace danqing::server
