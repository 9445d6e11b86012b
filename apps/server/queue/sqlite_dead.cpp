// What an operator sees of a SQLite queue. Works beside a running server: only the database is asked.
#include <algorithm>

#include "base/try.h"
#include "server/queue/sqlite_queue.h"

namespace danqing::server {

Result<std::vector<DeadJob>> SqliteQueue::read_dead(const char* where, const std::string& id, size_t most) {
  const std::lock_guard lock(mutex_);
  Statement s(db_->get(),
              fmt::format("SELECT ticket, changed, reason, story FROM queue WHERE state = 'dead' {} ORDER BY changed "
                          "LIMIT {}",
                          where, most)
                  .c_str());
  if (!id.empty()) s.bind(1, std::string_view(id));
  std::vector<DeadJob> out;
  while (s.step()) {
    const auto json = parse_json(s.text(0), "queue");
    if (!json) continue;
    auto ticket = ticket_from_json(*json);
    if (!ticket) continue;
    DeadJob d{std::move(*ticket), s.number(1), s.text(2), Json::array()};
    if (auto story = parse_json(s.text(3), "queue")) d.story = std::move(*story);
    out.push_back(std::move(d));
  }
  if (s.failed()) return s.error();
  return out;
}

Result<std::vector<DeadJob>> SqliteQueue::dead(size_t most) { return read_dead("", "", most); }

Result<std::optional<DeadJob>> SqliteQueue::find_dead(const std::string& id) {
  DQ_TRY(std::vector<DeadJob> list, read_dead("AND id = ?", id, 1));
  if (list.empty()) return std::optional<DeadJob>();
  return std::optional<DeadJob>(std::move(list[0]));
}

Result<bool> SqliteQueue::replay(const std::string& id) {
  {
    const std::lock_guard lock(mutex_);
    DQ_CHECK(
        row("UPDATE queue SET state = 'replayed', attempts = 0, story = '[]', reason = '' WHERE id = ? AND state = "
            "'dead'",
            id));
    if (sqlite3_changes(db_->get()) == 0) return false;
    next_look_ = 0;
  }
  wake_.notify_all();
  return true;
}

Result<bool> SqliteQueue::drop(const std::string& id) {
  const std::lock_guard lock(mutex_);
  DQ_CHECK(row("DELETE FROM queue WHERE id = ? AND state = 'dead'", id));
  return sqlite3_changes(db_->get()) > 0;
}

Result<QueueStats> SqliteQueue::stats() {
  const std::lock_guard lock(mutex_);
  QueueStats out;
  out.where = "sqlite";
  Statement s(db_->get(), "SELECT ticket, state, attempts FROM queue");
  while (s.step()) {
    const std::string state = s.text(1);
    if (state == "dead") ++out.dead;
    const bool waits = state == "waiting" || state == "replayed";
    if (!waits && state != "running") continue;
    const auto json = parse_json(s.text(0), "queue");
    if (!json) continue;
    const auto t = ticket_from_json(*json);
    if (!t) continue;
    auto lane = std::find_if(out.lanes.begin(), out.lanes.end(), [&](const QueueStats::Lane& l) {
      return l.model == t->spec.model && l.size_class == t->size_class;
    });
    if (lane == out.lanes.end()) lane = out.lanes.insert(lane, {t->spec.model, t->size_class, 0, 0, 0});
    ++(waits ? lane->waiting : lane->running);
    ++(waits ? out.waiting : out.running);
    if (s.integer(2) > (waits ? 0 : 1)) ++lane->again;
  }
  if (s.failed()) return s.error();
  return out;
}

}  // namespace danqing::server
