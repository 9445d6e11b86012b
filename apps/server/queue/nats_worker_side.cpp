// From take to finish.
#include <algorithm>

#include "base/try.h"
#include "server/auth/crypto.h"
#include "server/ops/ecs_log.h"
#include "server/queue/nats_queue_impl.h"

namespace danqing::server::nats {
namespace {

Held& held_of(const Lease& l) { return *static_cast<Held*>(l.handle.get()); }

Json result_json(const Outcome& o, const std::string& nonce, const Held* held) {
  Json objects = Json::array();
  if (held)
    for (const auto& [n, name] : held->objects) objects.push_back({{"n", n}, {"object", name}});
  return {{"outcome", to_json(o)}, {"by", nonce}, {"objects", objects}};
}

}  // namespace

Result<Msg> NatsQueue::fetch(natsSubscription* sub, double seconds) {
  jsFetchRequest r;
  jsFetchRequest_Init(&r);
  r.Batch = 1;
  r.Expires = static_cast<int64_t>(std::max(seconds, 0.2) * 1e9);
  r.NoWait = seconds <= 0;
  natsMsgList list{};
  const natsStatus s = natsSubscription_FetchRequest(&list, sub, &r);
  Msg first;
  if (s == NATS_OK && list.Count > 0) {
    first.reset(list.Msgs[0]);
    list.Msgs[0] = nullptr;
  }
  natsMsgList_Destroy(&list);
  if (s == NATS_OK || s == NATS_TIMEOUT || s == NATS_NOT_FOUND) return first;
  if (s == NATS_NO_RESPONDERS || s == NATS_INVALID_SUBSCRIPTION) {  // the server came back without its data
    forget_layout();
    lanes_.clear();
  }
  return client_->error("jobs cannot be pulled", s);
}

// Every lane is asked once; if nothing waits, one of them (in turn) is waited on. A worker has a handful of lanes.
Result<std::vector<Lease>> NatsQueue::take(const Want& want, double seconds) {
  const std::lock_guard lock(take_mutex_);
  if (!client_->connected()) return fail(ErrorCode::failed, "{}", client_->trouble());
  if (want.lanes.empty()) return std::vector<Lease>();
  ++turn_;
  for (size_t i = 0; i < want.lanes.size(); ++i) {
    const bool wait = i + 1 == want.lanes.size();
    const Want::Lane& lane = want.lanes[(turn_ + i) % want.lanes.size()];
    DQ_TRY(natsSubscription * sub, lane_subscription(lane));
    DQ_TRY(Msg m, fetch(sub, wait ? seconds : 0));
    if (!m) continue;
    DQ_TRY(std::optional<Lease> lease, lend(std::move(m)));
    if (lease) return std::vector<Lease>{std::move(*lease)};
    return std::vector<Lease>();
  }
  return std::vector<Lease>();
}

Result<bool> NatsQueue::has_ended(const Ticket& t) {
  DQ_TRY(const auto found, client_->last(at_.stream("RESULTS"), at_.result(t.origin, t.id)));
  return found.has_value();
}

Result<void> NatsQueue::note(const Ticket& t, const char* event, int attempt) {
  const Json line{{"when", now_seconds()}, {"worker", options_.name}, {"event", event}, {"attempt", attempt}};
  DQ_CHECK(client_->put(at_.story(t.id), dump_json(line)));
  return {};
}

/// None: the job ended before, is a dead letter now, or cannot be read.
Result<std::optional<Lease>> NatsQueue::lend(Msg message) {
  jsMsgMetaData* meta = nullptr;
  int deliveries = 1;
  if (natsMsg_GetMetaData(&meta, message.get()) == NATS_OK) deliveries = static_cast<int>(meta->NumDelivered);
  jsMsgMetaData_Destroy(meta);
  const auto json = parse_json(text(message.get()), "queue");
  Result<Ticket> ticket = json ? ticket_from_json(*json) : Result<Ticket>(json.error());
  if (!ticket) {
    log_event(log::Level::error, "[queue] a message that is no job is thrown away: " + ticket.error().message,
              {{"event.action", "job-unreadable"}});
    natsMsg_Term(message.get(), nullptr);
    return std::optional<Lease>();
  }
  auto held = std::make_shared<Held>();
  held->message = std::move(message);
  DQ_TRY(const bool ended, has_ended(*ticket));
  if (ended) {
    DQ_CHECK(acknowledge(*held));
    return std::optional<Lease>();
  }
  int attempts = 1;
  if (deliveries > 1) {
    DQ_TRY(const std::vector<std::string> story, client_->all(at_.stream("STORY"), at_.story(ticket->id), 1000));
    for (const std::string& line : story)
      if (const auto j = parse_json(line, "story"); j && j->is_object()) {
        const std::string event = j->value("event", "");
        attempts += event == "started" ? 1 : event == "given back" ? -1 : 0;
      }
    const bool poison = attempts > rules_.attempts;
    if (poison || deliveries >= rules_.attempts + 40) {
      DQ_CHECK(bury(*ticket, poison ? fmt::format("[jobs] {} workers ended while they drew this job", rules_.attempts)
                                    : fmt::format("[jobs] {} workers took this job and none drew it", deliveries)));
      DQ_CHECK(acknowledge(*held));
      return std::optional<Lease>();
    }
  }
  natsSubscription* control = nullptr;
  const natsStatus s = natsConnection_SubscribeSync(&control, client_->connection(), at_.control(ticket->id).c_str());
  if (s != NATS_OK) return client_->error("a job's calls cannot be heard", s);
  held->control.reset(control);
  held->nonce = options_.name + "-" + random_hex(8);
  held->extended = now_seconds();
  DQ_CHECK(note(*ticket, "started", attempts));
  Lease lease;
  lease.ticket = std::move(*ticket);
  lease.attempt = attempts;
  lease.handle = held;
  return std::optional<Lease>(std::move(lease));
}

Result<void> NatsQueue::bury(const Ticket& t, const std::string& reason) {
  DQ_TRY(const std::vector<std::string> lines, client_->all(at_.stream("STORY"), at_.story(t.id), 1000));
  DeadJob d{t, now_seconds(), reason, Json::array()};
  for (const std::string& line : lines)
    if (auto j = parse_json(line, "story")) d.story.push_back(std::move(*j));
  Client::Put once;
  once.only_if_none = true;
  DQ_CHECK(client_->put(at_.dead(t.id), dump_json(to_json(d)), once));
  Outcome o;
  o.status = Status::failed;
  o.code = "interrupted";
  o.message = reason + " (danqing queue dead show " + t.id + ")";
  o.worker = options_.name;
  DQ_CHECK(client_->put(at_.result(t.origin, t.id), dump_json(result_json(o, options_.name, nullptr)), once));
  log_event(log::Level::error, reason,
            {{"trace.id", t.trace_id}, {"event.action", "job-dead"}, {"danqing.job.id", t.id}});
  return {};
}

Result<void> NatsQueue::acknowledge(Held& held) {
  jsErrCode code{};
  const natsStatus s = natsMsg_AckSync(held.message.get(), nullptr, &code);
  // An answer that was given before is the end of it. So is a queue that does not know the message any more; should it
  // come again after all, its result is there.
  if (s == NATS_OK || s == NATS_ILLEGAL_STATE || (s == NATS_NO_RESPONDERS && client_->connected())) return {};
  return client_->error("a job's end cannot be confirmed", s, code);
}

void NatsQueue::end(const std::shared_ptr<Held>& held) {
  held->over = true;
  if (held->control) natsSubscription_Unsubscribe(held->control.get());
}

void NatsQueue::extend(const Lease& lease) {
  Held& held = held_of(lease);
  bool look = false;
  {
    const std::lock_guard lock(held.mutex);
    if (held.over) return;
    natsMsg* m = nullptr;
    while (natsSubscription_NextMsg(&m, held.control.get(), 0) == NATS_OK) {
      const Msg msg(m);
      const auto j = parse_json(text(m), "control");
      if (!j || !j->is_object()) continue;
      if (j->value("cancel", false)) lease.flags->cancelled = true;
      if (j->contains("previews")) lease.flags->previews = j->value("previews", false);
    }
    const double now = now_seconds();
    if (client_->connected() && now - held.extended > rules_.lease_seconds / 3) {
      natsMsg_InProgress(held.message.get(), nullptr);
      held.extended = now;
      look = true;
    }
  }
  if (!look || lease.flags->cancelled) return;
  // A call may have been lost with the connection, or another worker have been faster.
  if (const auto ended = has_ended(lease.ticket); ended && *ended) lease.flags->cancelled = true;
}

void NatsQueue::tell(const Lease& lease, const Update& u) {
  const Ticket& t = lease.ticket;
  std::string data = dump_json(to_json(u));
  Headers headers;
  if (u.kind == Update::Kind::preview && u.preview) {
    const auto bytes = encode_image(*u.preview, ImageFormat::webp, {}, {75});
    if (!bytes) return;
    headers = {{"Danqing-Update", data}};
    data = *bytes;
  }
  client_->publish(at_.progress(t.origin, t.id), data, headers);
}

Result<void> NatsQueue::put_picture(const Lease& lease, const Update& u, std::string& name) {
  name = fmt::format("{}/{}-{}", lease.ticket.id, u.picture.n, held_of(lease).nonce);
  DQ_CHECK(objects_.put(name, u.bytes));
  return objects_.put(name + ".thumb", u.thumbnail);
}

Result<void> NatsQueue::keep(const Lease& lease, const Update& u) {
  std::string name;
  if (auto put = put_picture(lease, u, name); !put) {
    forget_layout();
    (void)ensure_streams();
    return put;
  }
  Held& held = held_of(lease);
  {
    const std::lock_guard lock(held.mutex);
    std::erase_if(held.objects, [&](const auto& o) { return o.first == u.picture.n; });
    held.objects.emplace_back(u.picture.n, name);
  }
  Json j = to_json(u);
  j["object"] = name;
  j["last"] = u.picture.n + 1 == lease.ticket.images();
  client_->publish(at_.progress(lease.ticket.origin, lease.ticket.id), dump_json(j));
  return {};
}

Result<bool> NatsQueue::finish(const Lease& lease, const Outcome& outcome) {
  const Ticket& t = lease.ticket;
  auto held = std::static_pointer_cast<Held>(lease.handle);
  const std::string subject = at_.result(t.origin, t.id);
  Client::Put once;
  once.only_if_none = true;
  DQ_TRY(bool first, client_->put(subject, dump_json(result_json(outcome, held->nonce, held.get())), once));
  if (!first) {  // another one's, or our own whose confirmation was lost
    DQ_TRY(const auto found, client_->last(at_.stream("RESULTS"), subject));
    const auto j = found ? parse_json(*found, "result") : Result<Json>(Json());
    first = j && j->is_object() && j->value("by", "") == held->nonce;
  }
  const std::lock_guard lock(held->mutex);
  DQ_CHECK(acknowledge(*held));
  end(held);
  if (!first)
    for (const auto& [n, name] : held->objects)
      for (const char* suffix : {"", ".thumb"}) (void)objects_.remove(name + suffix);
  return first;
}

Result<void> NatsQueue::give_back(const Lease& lease, bool counts) {
  auto held = std::static_pointer_cast<Held>(lease.handle);
  DQ_TRY(const bool ended, has_ended(lease.ticket));
  const std::lock_guard lock(held->mutex);
  if (ended) {
    DQ_CHECK(acknowledge(*held));
  } else {
    DQ_CHECK(note(lease.ticket, counts ? "device lost" : "given back", lease.attempt));
    const natsStatus s = natsMsg_Nak(held->message.get(), nullptr);
    if (s != NATS_OK && s != NATS_ILLEGAL_STATE) return client_->error("a job cannot be given back", s);
    Update u;
    u.kind = Update::Kind::given_back;
    u.id = lease.ticket.id;
    u.worker = options_.name;
    tell(lease, u);
    client_->flush(2000);
  }
  end(held);
  for (const auto& [n, name] : held->objects)
    for (const char* suffix : {"", ".thumb"}) (void)objects_.remove(name + suffix);
  return {};
}

}  // namespace danqing::server::nats
