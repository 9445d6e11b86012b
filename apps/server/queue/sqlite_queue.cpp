#include "server/queue/sqlite_queue.h"

#include <algorithm>

#include "base/try.h"

namespace danqing::server {

const char* const kQueueSchema = R"(
CREATE TABLE IF NOT EXISTS queue (
  id TEXT PRIMARY KEY, state TEXT NOT NULL, attempts INTEGER NOT NULL, changed REAL NOT NULL, ticket TEXT NOT NULL,
  story TEXT NOT NULL, reason TEXT NOT NULL, outcome TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS queue_state ON queue (state, changed);
)";

namespace {
constexpr const char* kWorker = "local";
constexpr double kLook = 1;  // seconds between looks for what `danqing queue dead replay` put back

Update died(const std::string& id, const std::string& reason) {
  Update u;
  u.kind = Update::Kind::ended;
  u.id = id;
  u.outcome.status = Status::failed;
  u.outcome.code = "interrupted";
  u.outcome.message = reason + " (danqing queue dead show " + id + ")";
  return u;
}

}  // namespace

Result<std::unique_ptr<SqliteQueue>> SqliteQueue::open(const std::string& path, QueueRules rules, Use use) {
  std::unique_ptr<SqliteQueue> q(new SqliteQueue(rules));
  DQ_TRY(q->db_, Database::open(path));
  DQ_CHECK(q->db_->exec(kQueueSchema));
  if (use == Use::look) return q;
  for (const char* state : {"waiting", "running", "replayed"}) DQ_CHECK(q->load(state));
  return q;
}

Result<void> SqliteQueue::load(const char* state) {
  Statement s(db_->get(), "SELECT ticket, attempts, story FROM queue WHERE state = ? ORDER BY changed");
  s.bind(1, std::string_view(state));
  std::vector<std::string> ids;
  while (s.step()) {
    const auto json = parse_json(s.text(0), "queue");
    if (!json) continue;
    auto ticket = ticket_from_json(*json);
    if (!ticket || entries_.count(ticket->id)) continue;
    Entry e;
    e.ticket = std::move(*ticket);
    e.attempts = static_cast<int>(s.integer(1));
    if (auto story = parse_json(s.text(2), "queue"); story && story->is_array()) e.story = std::move(*story);
    if (state == std::string_view("running")) note(e, "process ended");
    push(e);
    ids.push_back(e.ticket.id);
    entries_[e.ticket.id] = std::move(e);
  }
  if (s.failed()) return s.error();
  if (state == std::string_view("replayed"))
    for (const std::string& id : ids) DQ_CHECK(row("UPDATE queue SET state = 'waiting' WHERE id = ?", id));
  return {};
}

void SqliteQueue::push(const Entry& e) {
  waiting_.push({e.ticket.id, e.ticket.key, e.ticket.spec.priority, e.ticket.seq});
}

Result<void> SqliteQueue::row(const char* sql, const std::string& id) {
  return Statement(db_->get(), sql).bind(1, std::string_view(id)).run();
}

Result<void> SqliteQueue::write(const Entry& e) {
  return Statement(db_->get(), "UPDATE queue SET state = ?, attempts = ?, changed = ?, story = ? WHERE id = ?")
      .bind(1, std::string_view(e.running ? "running" : "waiting"))
      .bind(2, int64_t{e.attempts})
      .bind(3, now_seconds())
      .bind(4, dump_json(e.story))
      .bind(5, std::string_view(e.ticket.id))
      .run();
}

void SqliteQueue::note(Entry& e, const char* event) const {
  e.story.push_back({{"when", now_seconds()}, {"worker", kWorker}, {"event", event}, {"attempt", e.attempts}});
}

Result<bool> SqliteQueue::submit(const Ticket& t) {
  {
    const std::lock_guard lock(mutex_);
    if (entries_.count(t.id)) return false;
    Statement s(db_->get(), "INSERT OR IGNORE INTO queue VALUES (?, 'waiting', 0, ?, ?, '[]', '', '')");
    DQ_CHECK(s.bind(1, std::string_view(t.id)).bind(2, now_seconds()).bind(3, dump_json(to_json(t))).run());
    if (sqlite3_changes(db_->get()) == 0) return false;
    Entry e;
    e.ticket = t;
    push(e);
    entries_[t.id] = std::move(e);
  }
  wake_.notify_all();
  return true;
}

Result<void> SqliteQueue::cancel(const Ticket& t, const Outcome& how) {
  {
    const std::lock_guard lock(mutex_);
    const auto it = entries_.find(t.id);
    if (it == entries_.end()) return {};
    it->second.flags->cancelled = true;
    waiting_.remove(t.id);
    entries_.erase(it);
    DQ_CHECK(row("DELETE FROM queue WHERE id = ? AND state <> 'dead'", t.id));
  }
  Update u;
  u.kind = Update::Kind::ended;
  u.id = t.id;
  u.outcome = how;
  deliver(u);
  return {};
}

void SqliteQueue::want_previews(const std::string& id, bool wanted) {
  const std::lock_guard lock(mutex_);
  if (const auto it = entries_.find(id); it != entries_.end()) it->second.flags->previews = wanted;
}

// The listener takes the queue's and the server's locks in turn: it is never called under mutex_.
bool SqliteQueue::deliver(const Update& u) {
  const std::lock_guard lock(listener_mutex_);
  return listener_ && listener_(u);
}

Result<void> SqliteQueue::listen(Listener listener) {
  {
    const std::lock_guard lock(listener_mutex_);
    listener_ = std::move(listener);
  }
  std::vector<Update> ended;
  {
    const std::lock_guard lock(mutex_);
    // The dead too: the process may have ended before the server knew. Who knows already does not mind.
    Statement s(db_->get(),
                "SELECT id, outcome, reason, state FROM queue WHERE state IN ('ended', 'dead') ORDER BY changed");
    while (s.step()) {
      if (s.text(3) == "dead") {
        ended.push_back(died(s.text(0), s.text(2)));
        continue;
      }
      const auto json = parse_json(s.text(1), "queue");
      if (!json) continue;
      auto outcome = outcome_from_json(*json);
      if (!outcome) continue;
      Update u;
      u.kind = Update::Kind::ended;
      u.id = s.text(0);
      u.outcome = std::move(*outcome);
      ended.push_back(std::move(u));
    }
  }
  for (const Update& u : ended)
    if (deliver(u)) {
      const std::lock_guard lock(mutex_);
      DQ_CHECK(row("DELETE FROM queue WHERE id = ? AND state = 'ended'", u.id));
    }
  return {};
}

std::vector<std::string> SqliteQueue::order() {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> out;
  for (QueueEntry& e : waiting_.order()) out.push_back(std::move(e.id));
  return out;
}

void SqliteQueue::expire(double now) {
  for (auto& [id, e] : entries_)
    if (e.running && now > e.expires) {
      e.running = false;
      e.flags->cancelled = true;
      e.flags = std::make_shared<Lease::Flags>();
      note(e, "lease ended");
      (void)write(e);
      push(e);
    }
}

bool SqliteQueue::pop(const Want& want, const Ticket* first, int pictures, std::vector<Lease>& out,
                      std::vector<Entry>& hopeless) {
  const auto fits = [&](const QueueEntry& q) {
    const Ticket& t = entries_.at(q.id).ticket;
    if (!want.lanes.empty() &&
        std::find(want.lanes.begin(), want.lanes.end(), Want::Lane{t.spec.model, t.size_class}) == want.lanes.end())
      return false;
    return !first || (want.together && pictures + t.images() <= want.most && want.together(*first, t));
  };
  QueueEntry found;
  while (waiting_.pop(fits, found)) {
    Entry& e = entries_.at(found.id);
    if (e.attempts >= rules_.attempts) {
      hopeless.push_back(std::move(e));
      entries_.erase(found.id);
      continue;
    }
    e.running = true;
    ++e.attempts;
    e.expires = now_seconds() + rules_.lease_seconds;
    note(e, "started");
    Lease lease;
    lease.ticket = e.ticket;
    lease.attempt = e.attempts;
    lease.flags = e.flags;
    out.push_back(std::move(lease));
    return true;
  }
  return false;
}

Result<std::vector<Lease>> SqliteQueue::take(const Want& want, double seconds) {
  const double until = now_seconds() + seconds;
  std::vector<Lease> out;
  std::vector<Entry> hopeless;
  {
    std::unique_lock lock(mutex_);
    for (;;) {
      const double now = now_seconds();
      expire(now);
      if (now >= next_look_) {
        DQ_CHECK(load("replayed"));
        next_look_ = now + kLook;
      }
      if (pop(want, nullptr, 0, out, hopeless) || woken_ || !hopeless.empty() || now >= until) break;
      wake_.wait_for(lock, std::chrono::duration<double>(std::min(until - now, kLook)));
    }
    woken_ = false;
    if (!out.empty()) {
      int pictures = out[0].ticket.images();
      while (pictures < want.most && pop(want, &out[0].ticket, pictures, out, hopeless))
        pictures += out.back().ticket.images();
    }
    // A start that cannot be written (disk full) is no reason not to draw.
    for (const Lease& l : out) (void)write(entries_.at(l.ticket.id));
  }
  for (const Entry& e : hopeless) bury(e);
  return out;
}

void SqliteQueue::bury(const Entry& e) {
  const std::string reason = fmt::format("[jobs] the process ended {} times while it drew this job", e.attempts);
  {
    const std::lock_guard lock(mutex_);
    (void)Statement(db_->get(), "UPDATE queue SET state = 'dead', reason = ?, changed = ?, story = ? WHERE id = ?")
        .bind(1, std::string_view(reason))
        .bind(2, now_seconds())
        .bind(3, dump_json(e.story))
        .bind(4, std::string_view(e.ticket.id))
        .run();
  }
  deliver(died(e.ticket.id, reason));
}

bool SqliteQueue::holds(const Lease& lease) const {
  const auto it = entries_.find(lease.ticket.id);
  return it != entries_.end() && it->second.flags == lease.flags;
}

void SqliteQueue::extend(const Lease& lease) {
  const std::lock_guard lock(mutex_);
  if (holds(lease)) entries_.at(lease.ticket.id).expires = now_seconds() + rules_.lease_seconds;
}

void SqliteQueue::tell(const Lease& lease, const Update& u) {
  {
    const std::lock_guard lock(mutex_);
    if (!holds(lease)) return;
  }
  deliver(u);
}

Result<void> SqliteQueue::keep(const Lease& lease, const Update& picture) {
  {
    const std::lock_guard lock(mutex_);
    if (!holds(lease)) return {};
  }
  if (!deliver(picture)) return fail(ErrorCode::failed, "[queue] nobody takes the picture");
  return {};
}

Result<bool> SqliteQueue::finish(const Lease& lease, const Outcome& outcome) {
  {
    const std::lock_guard lock(mutex_);
    if (!holds(lease)) return false;
    entries_.erase(lease.ticket.id);
  }
  Update u;
  u.kind = Update::Kind::ended;
  u.id = lease.ticket.id;
  u.outcome = outcome;
  bool somebody = false;
  {
    const std::lock_guard lock(listener_mutex_);
    somebody = listener_ != nullptr;
  }
  const bool heard = deliver(u);
  const std::lock_guard lock(mutex_);
  if (somebody && !heard) return true;  // its end cannot be stored: drawn again after a restart
  if (heard) {
    DQ_CHECK(row("DELETE FROM queue WHERE id = ? AND state IN ('running', 'waiting')", u.id));
  } else {
    DQ_CHECK(Statement(db_->get(), "UPDATE queue SET state = 'ended', changed = ?, outcome = ? WHERE id = ?")
                 .bind(1, now_seconds())
                 .bind(2, dump_json(to_json(outcome)))
                 .bind(3, std::string_view(u.id))
                 .run());
  }
  return true;
}

Result<void> SqliteQueue::give_back(const Lease& lease, bool counts) {
  {
    const std::lock_guard lock(mutex_);
    if (!holds(lease)) return {};
    Entry& e = entries_.at(lease.ticket.id);
    e.running = false;
    if (!counts) --e.attempts;
    e.flags = std::make_shared<Lease::Flags>();
    note(e, counts ? "device lost" : "given back");
    DQ_CHECK(write(e));
    push(e);
  }
  wake_.notify_all();
  Update u;
  u.kind = Update::Kind::given_back;
  u.id = lease.ticket.id;
  deliver(u);
  return {};
}

void SqliteQueue::wake() {
  {
    const std::lock_guard lock(mutex_);
    woken_ = true;
  }
  wake_.notify_all();
}

void SqliteQueue::stop() {
  wake();
  const std::lock_guard lock(listener_mutex_);
  listener_ = nullptr;
}

}  // namespace danqing::server
