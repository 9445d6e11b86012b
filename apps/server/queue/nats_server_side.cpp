// Submitting, cancelling, and hearing what came of it.
#include <algorithm>

#include "base/try.h"
#include "server/auth/crypto.h"
#include "server/ops/ecs_log.h"
#include "server/queue/nats_queue_impl.h"

namespace danqing::server::nats {
namespace {

constexpr double kYoung = 60;  // seconds: such a job cannot have ended and been forgotten by the window of message ids
constexpr int kAtOnce = 4;     // results that one thread fetches together
constexpr int kHearers = 8;    // threads that fetch pictures: each chunk is a round trip

std::string traceparent(const Ticket& t) { return "00-" + t.trace_id + "-" + random_hex(8) + "-01"; }

}  // namespace

Result<bool> NatsQueue::submit(const Ticket& ticket) {
  Ticket t = ticket;
  t.origin = options_.origin;
  DQ_CHECK(ensure_lane(t.spec.model, t.size_class));
  if (now_seconds() - t.created > kYoung) {
    DQ_TRY(const bool ended, has_ended(t));
    if (ended) return false;
  }
  Client::Put once;
  once.msg_id = t.id;
  once.only_if_none = true;
  once.headers = {{"traceparent", traceparent(t)}};
  auto fresh = client_->put(at_.job(t), dump_json(to_json(t)), once);
  if (!fresh) {
    forget_layout();
    return fresh;
  }
  waits(t.id, false);
  return fresh;
}

void NatsQueue::waits(const std::string& id, bool again) {
  const std::lock_guard lock(mutex_);
  auto it = places_.find(id);
  if (it == places_.end()) {
    if (again) return;
    it = places_.emplace(id, ++next_place_).first;
  }
  waiting_[it->second] = id;
}

std::vector<std::string> NatsQueue::order() {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> out;
  for (const auto& [place, id] : waiting_) out.push_back(id);
  return out;
}

// First the end that counts, then the calls: a worker that misses them finds the end when it wants to write its own.
Result<void> NatsQueue::cancel(const Ticket& ticket, const Outcome& how) {
  Ticket t = ticket;
  t.origin = options_.origin;
  DQ_CHECK(ensure_streams());
  Client::Put once;
  once.only_if_none = true;
  const Json result{{"outcome", to_json(how)}, {"by", options_.name}, {"objects", Json::array()}};
  DQ_CHECK(client_->put(at_.result(t.origin, t.id), dump_json(result), once));
  client_->publish(at_.control(t.id), R"({"cancel":true})");
  return client_->purge(at_.stream("JOBS"), at_.job(t));
}

void NatsQueue::want_previews(const std::string& id, bool wanted) {
  client_->publish(at_.control(id), dump_json({{"previews", wanted}}));
}

Result<void> NatsQueue::listen(Listener listener) {
  {
    const std::lock_guard lock(listener_mutex_);
    listener_ = std::move(listener);
  }
  if (progress_thread_.joinable()) return {};
  progress_thread_ = std::thread([this] { hear_progress(); });
  for (int i = 0; i < kHearers; ++i) results_threads_.emplace_back([this] { hear_results(); });
  return {};
}

void NatsQueue::stop() {
  stopping_ = true;
  {
    const std::lock_guard lock(listener_mutex_);
    listener_ = nullptr;
  }
  if (progress_thread_.joinable()) progress_thread_.join();
  for (std::thread& t : results_threads_)
    if (t.joinable()) t.join();
}

bool NatsQueue::deliver(const Update& u) {
  {
    const std::lock_guard lock(mutex_);
    const auto it = places_.find(u.id);
    if (it != places_.end() && u.kind != Update::Kind::given_back) waiting_.erase(it->second);
    if (it != places_.end() && u.kind == Update::Kind::ended) places_.erase(it);
  }
  if (u.kind == Update::Kind::given_back) waits(u.id, true);
  const std::lock_guard lock(listener_mutex_);
  return listener_ && listener_(u);
}

void NatsQueue::hear_progress() {
  const std::string subject = at_.progress(options_.origin, "*");
  Subscription sub;
  while (!stopping_) {
    if (!sub) {
      natsSubscription* s = nullptr;
      if (natsConnection_SubscribeSync(&s, client_->connection(), subject.c_str()) != NATS_OK) {
        nats_Sleep(200);
        continue;
      }
      sub.reset(s);
    }
    natsMsg* m = nullptr;
    const natsStatus s = natsSubscription_NextMsg(&m, sub.get(), 200);
    const Msg msg(m);
    if (s == NATS_OK)
      progress_message(m);
    else if (s != NATS_TIMEOUT && s != NATS_SLOW_CONSUMER)  // what a slow server misses is only progress
      nats_Sleep(200);
  }
}

void NatsQueue::progress_message(natsMsg* m) {
  const std::string described = header(m, "Danqing-Update");
  const auto json = parse_json(described.empty() ? text(m) : described, "progress");
  if (!json) return;
  auto u = update_from_json(*json);
  if (!u || !is_job_id(u->id) || u->kind == Update::Kind::ended) return;
  if (u->kind == Update::Kind::preview) {
    auto image = decode_image(text(m));
    if (!image) return;
    u->preview = std::make_shared<const Image>(std::move(*image));
  }
  if (u->kind == Update::Kind::picture) {
    if (!json->value("last", true)) (void)fetch_picture(u->id, u->picture, json->value("object", ""));
    return;  // the result names all of them again
  }
  deliver(*u);
}

/// False: the object is not there any more. One at a time for a job: progress and results both name it, and it is told
/// once.
Result<bool> NatsQueue::fetch_picture(const std::string& id, const Picture& picture, const std::string& object) {
  const std::lock_guard turn(fetch_mutexes_[std::hash<std::string>()(id) % fetch_mutexes_.size()]);
  {
    const std::lock_guard lock(mutex_);
    if (fetched_.count(object)) return true;
  }
  DQ_TRY(auto bytes, objects_.get(object));
  DQ_TRY(auto thumbnail, objects_.get(object + ".thumb"));
  if (!bytes || !thumbnail) return false;
  Update u;
  u.kind = Update::Kind::picture;
  u.id = id;
  u.picture = picture;
  u.bytes = std::move(*bytes), u.thumbnail = std::move(*thumbnail);
  if (deliver(u)) {
    const std::lock_guard lock(mutex_);
    fetched_.insert(object);
  }
  return true;
}

Result<Subscription> NatsQueue::results() {
  DQ_CHECK(ensure_streams());
  const std::string name = "server-" + options_.origin, filter = at_.result(options_.origin, "*"),
                    stream = at_.stream("RESULTS");
  jsConsumerConfig c;
  jsConsumerConfig_Init(&c);
  c.Durable = name.c_str();
  c.FilterSubject = filter.c_str();
  c.AckPolicy = js_AckExplicit;
  c.AckWait = 30'000'000'000;
  c.InactiveThreshold = static_cast<int64_t>((options_.keep_hours + 1) * 3600e9);
  jsErrCode code{};
  natsStatus s = js_AddConsumer(nullptr, client_->js(), stream.c_str(), &c, nullptr, &code);
  if (s != NATS_OK && code == JSConsumerNameExistErr)
    s = js_UpdateConsumer(nullptr, client_->js(), stream.c_str(), &c, nullptr, &code);
  if (s != NATS_OK) return client_->error("results cannot be heard", s, code);
  jsSubOptions o;
  jsSubOptions_Init(&o);
  o.Stream = stream.c_str();
  o.Consumer = name.c_str();
  natsSubscription* sub = nullptr;
  s = js_PullSubscribe(&sub, client_->js(), filter.c_str(), name.c_str(), nullptr, &o, &code);
  if (s != NATS_OK) return client_->error("results cannot be heard", s, code);
  return Subscription(sub);
}

void NatsQueue::hear_results() {
  Subscription sub;
  while (!stopping_) {
    if (!sub) {
      auto made = results();
      if (!made) {
        forget_layout();
        for (int i = 0; i < 5 && !stopping_; ++i) nats_Sleep(100);
        continue;
      }
      sub = std::move(*made);
    }
    natsMsgList list{};
    const natsStatus s = natsSubscription_Fetch(&list, sub.get(), kAtOnce, 500, nullptr);
    for (int i = 0; i < list.Count; ++i) {
      Msg m(list.Msgs[i]);
      list.Msgs[i] = nullptr;
      if (!stopping_) result_message(std::move(m));
    }
    natsMsgList_Destroy(&list);
    if (s != NATS_OK && s != NATS_TIMEOUT && s != NATS_NOT_FOUND) {
      if (s == NATS_NO_RESPONDERS) sub.reset();
      nats_Sleep(200);
    }
  }
}

void NatsQueue::result_message(Msg message) {
  natsMsg* m = message.get();
  const std::string subject = natsMsg_GetSubject(m);
  const std::string id = subject.substr(subject.rfind('.') + 1);
  const auto json = parse_json(text(m), "result");
  auto outcome = json && json->is_object() && json->contains("outcome")
                     ? outcome_from_json((*json)["outcome"])
                     : Result<Outcome>(bad_input("[queue] a result cannot be read"));
  if (!is_job_id(id) || !outcome) {
    natsMsg_Term(m, nullptr);
    return;
  }
  Update u;
  u.kind = Update::Kind::ended;
  u.id = id;
  u.outcome = std::move(*outcome);
  u.worker = u.outcome.worker;
  std::vector<std::string> objects;
  if (json->contains("objects") && (*json)["objects"].is_array())
    for (const Json& o : (*json)["objects"]) {
      const int n = o.value("n", -1);
      objects.push_back(o.value("object", ""));
      const auto& list = u.outcome.pictures;
      const auto p = std::find_if(list.begin(), list.end(), [&](const Picture& q) { return q.n == n; });
      if (p == list.end()) continue;
      const auto there = fetch_picture(id, *p, objects.back());
      if (!there) {  // the connection broke: the message comes again
        natsMsg_NakWithDelay(m, 1000, nullptr);
        return;
      }
      if (!*there) {
        u.outcome.status = Status::failed;
        u.outcome.code = "failed";
        u.outcome.message = "[queue] the picture waited in NATS for longer than --queue-keep-hours";
      }
    }
  if (!deliver(u)) {
    natsMsg_NakWithDelay(m, 5000, nullptr);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    for (const std::string& o : objects) fetched_.erase(o);
  }
  for (const std::string& o : objects)
    for (const char* suffix : {"", ".thumb"}) (void)objects_.remove(o + suffix);
  natsMsg_Ack(m, nullptr);
}

}  // namespace danqing::server::nats
