// The one contract between those who accept jobs and those who draw them. Two implementations: SqliteQueue (one
// machine, in the server's own database) and NatsQueue (many machines, JetStream). tests/queue runs one suite on both.
//
// A job that was submitted is drawn and ends exactly once in the eyes of its origin:
//   - submit is idempotent by id, and durable when it returns;
//   - take lends a job to one worker; a lease that is not extended, or whose worker died, goes to another one;
//   - a job that ended `attempts` workers is not lent again: it goes to the dead letters with its story, and fails with
//     the code "interrupted";
//   - the first end of a job counts (done, failed, cancelled); later ones are refused.
#pragma once
#include <atomic>
#include <functional>
#include <limits>
#include <memory>
#include <optional>

#include "server/queue/ticket.h"

namespace danqing::server {

/// How a queue treats jobs; the same for both implementations.
struct QueueRules {
  double lease_seconds = 30;  ///< without a sign of life for so long a worker counts as dead
  int attempts = 5;           ///< workers that a job may end
};

/// A job lent to a worker. Copies share the flags.
struct Lease {
  struct Flags {
    std::atomic<bool> cancelled{false};  ///< the job ended elsewhere, or the lease is lost: stop within a step
    std::atomic<bool> previews{false};   ///< somebody looks
  };
  Ticket ticket;
  int attempt = 1;  ///< the how manieth worker this is
  std::shared_ptr<Flags> flags = std::make_shared<Flags>();
  std::shared_ptr<void> handle;  ///< the implementation's own
};

/// What a worker can draw.
struct Want {
  struct Lane {
    std::string model, size_class;
    bool operator==(const Lane&) const = default;
  };
  std::vector<Lane> lanes;  ///< empty = anything
  int most = 1;             ///< pictures in one run
  /// Whether `other` may be drawn in the same run as `first`. Empty, or a queue that cannot look ahead (NATS): one job
  /// at a time.
  std::function<bool(const Ticket& first, const Ticket& other)> together;
};

struct DeadJob {
  Ticket ticket;
  double when = 0;             ///< seconds since 1970
  std::string reason;          ///< one line
  Json story = Json::array();  ///< what happened before: {"when", "worker", "event", "attempt"}, oldest first
};

struct QueueStats {
  struct Lane {
    std::string model, size_class;
    uint64_t waiting = 0, running = 0, again = 0;  ///< again: lent a second time, not ended yet
  };
  std::vector<Lane> lanes;
  uint64_t waiting = 0, running = 0, dead = 0;
  std::string where;  ///< "sqlite" or the address of the NATS server
};
Json to_json(const DeadJob& dead);
Json to_json(const QueueStats& stats);

/// Thread-safe. Errors are of the transport (nobody there, disk full); they may be tried again.
class JobQueue {
 public:
  /// Called with every update, one at a time for a job, on threads of the queue or of the worker. `ended` is delivered
  /// until the listener returns true; everything else at most once.
  using Listener = std::function<bool(const Update&)>;
  virtual ~JobQueue() = default;

  // Whoever accepts jobs.
  /// True: it is new here; false: a job of this id waits, runs or has ended.
  virtual Result<bool> submit(const Ticket& ticket) = 0;
  /// Ends it as `how` says. A job that waits is not lent any more; a running one hears of it within a step.
  virtual Result<void> cancel(const Ticket& ticket, const Outcome& how) = 0;
  virtual void want_previews(const std::string& id, bool wanted) = 0;
  /// From now on, and what ended since the listener was last there.
  virtual Result<void> listen(Listener listener) = 0;
  /// Ids that wait, the next one first, as far as this end knows.
  virtual std::vector<std::string> order() = 0;

  // Whoever draws them.
  /// Waits at most `seconds`. Empty: nothing came.
  virtual Result<std::vector<Lease>> take(const Want& want, double seconds) = 0;
  /// To be called several times a second while a job is worked on: keeps the lease and learns what the flags say.
  virtual void extend(const Lease& lease) = 0;
  /// running, progress, preview: may be lost.
  virtual void tell(const Lease& lease, const Update& update) = 0;
  /// A finished picture, before `finish` names it.
  virtual Result<void> keep(const Lease& lease, const Update& picture) = 0;
  /// True: this is the job's end. False: it had ended before, and what was kept is thrown away.
  virtual Result<bool> finish(const Lease& lease, const Outcome& outcome) = 0;
  /// The job waits again, at once. `counts`: this worker came to harm by it, as if it had died.
  virtual Result<void> give_back(const Lease& lease, bool counts = false) = 0;

  // The operator.
  virtual Result<std::vector<DeadJob>> dead(size_t most) = 0;  ///< oldest first
  virtual Result<std::optional<DeadJob>> find_dead(const std::string& id) = 0;
  /// It waits again, with a fresh story. False: there is no such dead job.
  virtual Result<bool> replay(const std::string& id) = 0;
  virtual Result<bool> drop(const std::string& id) = 0;
  virtual Result<QueueStats> stats() = 0;

  /// Bytes of a ticket as JSON that can be submitted.
  virtual size_t largest_ticket() const { return std::numeric_limits<size_t>::max(); }

  /// Empty while jobs can be submitted and taken.
  virtual std::string trouble() const = 0;
  /// It will not come back by itself (wrong credentials).
  virtual bool refused() const { return false; }
  /// Whoever waits in `take` returns.
  virtual void wake() = 0;
  /// No listener is called any more.
  virtual void stop() = 0;
};

}  // namespace danqing::server
