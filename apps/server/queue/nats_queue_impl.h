// NatsQueue itself; its parts are in nats_layout.cpp (streams), nats_server_side.cpp (submit, cancel, results),
// nats_worker_side.cpp (take to finish) and nats_operator.cpp (dead letters, figures).
#pragma once
#include <array>
#include <map>
#include <set>
#include <thread>

#include "server/queue/nats_objects.h"

namespace danqing::server::nats {

constexpr double kReplyWait = 5;  // seconds

/// Subjects and streams of one prefix.
struct Layout {
  std::string prefix;
  std::string stream(const char* what) const;  ///< "DANQING_JOBS"
  std::string job(const Ticket& t) const {
    return fmt::format("{}.{}.{}", lane(t.spec.model, t.size_class), t.origin, t.id);
  }
  std::string lane(const std::string& model, const std::string& size_class) const {
    return fmt::format("{}.jobs.{}.{}", prefix, token(model), token(size_class));
  }
  std::string result(const std::string& origin, const std::string& id) const {
    return fmt::format("{}.results.{}.{}", prefix, origin, id);
  }
  std::string progress(const std::string& origin, const std::string& id) const {
    return fmt::format("{}.progress.{}.{}", prefix, origin, id);
  }
  std::string control(const std::string& id) const { return fmt::format("{}.control.{}", prefix, id); }
  std::string dead(const std::string& id) const { return fmt::format("{}.dead.{}", prefix, id); }
  std::string story(const std::string& id) const { return fmt::format("{}.story.{}", prefix, id); }
};

/// A job in a worker's hands: the message to acknowledge, and where the server calls.
struct Held {
  std::mutex mutex;
  Msg message;
  Subscription control;
  std::string nonce;  ///< tells this delivery's result from another one's
  double extended = 0;
  bool over = false;
  std::vector<std::pair<int, std::string>> objects;  ///< picture n: its name in the object store
};

class NatsQueue : public JobQueue {
 public:
  NatsQueue(std::shared_ptr<Client> client, const NatsOptions& options, const QueueRules& rules);
  ~NatsQueue() override { stop(); }

  Result<bool> submit(const Ticket& ticket) override;
  Result<void> cancel(const Ticket& ticket, const Outcome& how) override;
  void want_previews(const std::string& id, bool wanted) override;
  Result<void> listen(Listener listener) override;
  std::vector<std::string> order() override;

  Result<std::vector<Lease>> take(const Want& want, double seconds) override;
  void extend(const Lease& lease) override;
  void tell(const Lease& lease, const Update& update) override;
  Result<void> keep(const Lease& lease, const Update& picture) override;
  Result<bool> finish(const Lease& lease, const Outcome& outcome) override;
  Result<void> give_back(const Lease& lease, bool counts = false) override;

  Result<std::vector<DeadJob>> dead(size_t most) override;
  Result<std::optional<DeadJob>> find_dead(const std::string& id) override;
  Result<bool> replay(const std::string& id) override;
  Result<bool> drop(const std::string& id) override;
  Result<QueueStats> stats() override;

  std::string trouble() const override { return client_->trouble(); }
  size_t largest_ticket() const override { return client_->largest_message(); }
  bool refused() const override { return natsConnection_IsClosed(client_->connection()); }
  void wake() override {}
  void stop() override;

 private:
  // Layout.
  Result<void> ensure_streams();
  Result<void> add_stream(const char* what, const std::string& name, const std::vector<std::string>& subjects,
                          jsStreamConfig& config);
  Result<void> ensure_lane(const std::string& model, const std::string& size_class);
  Result<natsSubscription*> lane_subscription(const Want::Lane& lane);
  void forget_layout();  ///< the server may have lost it
  // Worker's side.
  Result<Msg> fetch(natsSubscription* s, double seconds);
  Result<std::optional<Lease>> lend(Msg message);
  Result<bool> has_ended(const Ticket& t);
  Result<void> note(const Ticket& t, const char* event, int attempt);
  Result<void> bury(const Ticket& t, const std::string& reason);
  Result<void> acknowledge(Held& held);
  void end(const std::shared_ptr<Held>& held);
  Result<void> put_picture(const Lease& lease, const Update& picture, std::string& name);
  // Server's side.
  void hear_progress();
  void hear_results();
  Result<Subscription> results();
  void progress_message(natsMsg* m);
  void result_message(Msg message);
  Result<bool> fetch_picture(const std::string& id, const Picture& picture, const std::string& object);
  bool deliver(const Update& u);
  void waits(const std::string& id, bool again);

  std::shared_ptr<Client> client_;
  const NatsOptions options_;
  const QueueRules rules_;
  const Layout at_;
  Objects objects_;
  std::mutex layout_mutex_;
  bool streams_there_ = false;
  std::set<std::string> lanes_there_;
  std::map<std::string, Subscription> lanes_;
  size_t turn_ = 0;
  std::mutex take_mutex_;
  std::mutex mutex_;  ///< of the following; never held while NATS is asked
  // What this server submitted and nobody took yet, in order.
  std::map<uint64_t, std::string> waiting_;
  std::map<std::string, uint64_t> places_;
  uint64_t next_place_ = 0;
  std::mutex listener_mutex_;
  Listener listener_;
  std::array<std::mutex, 16> fetch_mutexes_;  ///< by job
  std::set<std::string> fetched_;             ///< objects whose picture was delivered, while their job runs
  std::atomic<bool> stopping_{false};
  std::thread progress_thread_;
  std::vector<std::thread> results_threads_;
};

}  // namespace danqing::server::nats
