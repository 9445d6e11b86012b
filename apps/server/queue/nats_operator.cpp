// Dead letters and figures.
#include <algorithm>

#include "base/try.h"
#include "server/queue/nats_queue_impl.h"

namespace danqing::server::nats {
namespace {

Result<DeadJob> read_dead(const std::string& message) {
  DQ_TRY(const Json j, parse_json(message, "dead letter"));
  if (!j.is_object() || !j.contains("job")) return bad_input("[queue] a dead letter cannot be read");
  DQ_TRY(Ticket t, ticket_from_json(j["job"]));
  return DeadJob{std::move(t), j.value("when", 0.0), j.value("reason", ""), j.value("story", Json::array())};
}

}  // namespace

Result<std::vector<DeadJob>> NatsQueue::dead(size_t most) {
  DQ_CHECK(ensure_streams());
  DQ_TRY(const std::vector<std::string> messages, client_->all(at_.stream("DEAD"), at_.dead("*"), most));
  std::vector<DeadJob> out;
  for (const std::string& m : messages)
    if (auto d = read_dead(m)) out.push_back(std::move(*d));
  return out;
}

Result<std::optional<DeadJob>> NatsQueue::find_dead(const std::string& id) {
  DQ_CHECK(ensure_streams());
  DQ_TRY(const std::optional<std::string> m, client_->last(at_.stream("DEAD"), at_.dead(id)));
  if (!m) return std::optional<DeadJob>();
  DQ_TRY(DeadJob d, read_dead(*m));
  return std::optional<DeadJob>(std::move(d));
}

// Every step may be done twice: after an interruption the command is given again.
Result<bool> NatsQueue::replay(const std::string& id) {
  DQ_TRY(const std::optional<DeadJob> d, find_dead(id));
  if (!d) return false;
  Ticket t = d->ticket;
  t.deadline = 0;
  DQ_CHECK(ensure_lane(t.spec.model, t.size_class));
  DQ_CHECK(client_->purge(at_.stream("STORY"), at_.story(id)));
  DQ_CHECK(client_->purge(at_.stream("RESULTS"), at_.result(t.origin, id)));
  Client::Put once;
  once.only_if_none = true;
  DQ_CHECK(client_->put(at_.job(t), dump_json(to_json(t)), once));
  DQ_CHECK(client_->purge(at_.stream("DEAD"), at_.dead(id)));
  return true;
}

Result<bool> NatsQueue::drop(const std::string& id) {
  DQ_CHECK(ensure_streams());
  DQ_TRY(const std::optional<std::string> m, client_->last(at_.stream("DEAD"), at_.dead(id)));
  if (!m) return false;
  DQ_CHECK(client_->purge(at_.stream("DEAD"), at_.dead(id)));
  return true;
}

Result<QueueStats> NatsQueue::stats() {
  DQ_CHECK(ensure_streams());
  QueueStats out;
  char url[256] = "";
  natsConnection_GetConnectedUrl(client_->connection(), url, sizeof url);
  out.where = url;
  jsConsumerInfoList* list = nullptr;
  jsErrCode code{};
  natsStatus s = js_Consumers(&list, client_->js(), at_.stream("JOBS").c_str(), nullptr, &code);
  if (s != NATS_OK) return client_->error("figures cannot be read", s, code);
  const std::string head = options_.prefix + ".jobs.";
  for (int i = 0; i < list->Count; ++i) {
    const jsConsumerInfo& c = *list->List[i];
    const std::string filter = c.Config && c.Config->FilterSubject ? c.Config->FilterSubject : "";
    if (filter.rfind(head, 0) != 0) continue;
    const size_t dot = filter.find('.', head.size()), end = filter.rfind('.');
    if (dot == std::string::npos || end <= dot) continue;
    QueueStats::Lane lane{untoken(filter.substr(head.size(), dot - head.size())),
                          untoken(filter.substr(dot + 1, end - dot - 1)), c.NumPending,
                          static_cast<uint64_t>(c.NumAckPending), static_cast<uint64_t>(c.NumRedelivered)};
    out.waiting += lane.waiting;
    out.running += lane.running;
    out.lanes.push_back(std::move(lane));
  }
  jsConsumerInfoList_Destroy(list);
  jsStreamInfo* info = nullptr;
  s = js_GetStreamInfo(&info, client_->js(), at_.stream("DEAD").c_str(), nullptr, &code);
  if (s != NATS_OK) return client_->error("figures cannot be read", s, code);
  out.dead = info->State.Msgs;
  jsStreamInfo_Destroy(info);
  return out;
}

}  // namespace danqing::server::nats
