// Streams and consumers. Whoever comes first makes them.
#include <algorithm>

#include "base/try.h"
#include "server/queue/nats_queue_impl.h"
#include "server/queue/open_queue.h"

namespace danqing::server::nats {
namespace {

constexpr int64_t kSecond = 1'000'000'000;  // nanoseconds
constexpr int64_t kDedupWindow = 600 * kSecond;
// NATS allows 1,000 unacknowledged messages and 512 waiting pulls a consumer unless told: too few for a thousand
// workers.
constexpr int64_t kMostRunning = 100'000, kMostWaiting = 16'384;
constexpr int kGiveBacks = 45;  // deliveries beyond the attempts: for jobs that draining workers gave back

int64_t nanoseconds(double seconds) { return static_cast<int64_t>(seconds * 1e9); }

}  // namespace

std::string Layout::stream(const char* what) const {
  std::string s = prefix + "_" + what;
  std::transform(s.begin(), s.end(), s.begin(), [](unsigned char c) { return std::toupper(c); });
  return s;
}

NatsQueue::NatsQueue(std::shared_ptr<Client> client, const NatsOptions& options, const QueueRules& rules)
    : client_(std::move(client)),
      options_(options),
      rules_(rules),
      at_{options.prefix},
      objects_(client_, options.prefix + "-pictures") {}

Result<void> NatsQueue::add_stream(const char* what, const std::string& name, const std::vector<std::string>& subjects,
                                   jsStreamConfig& config) {
  std::vector<const char*> list;
  for (const std::string& s : subjects) list.push_back(s.c_str());
  config.Name = name.c_str();
  config.Subjects = list.data();
  config.SubjectsLen = static_cast<int>(list.size());
  config.Storage = js_FileStorage;
  config.Replicas = options_.replicas;
  jsErrCode code{};
  natsStatus s = js_AddStream(nullptr, client_->js(), &config, nullptr, &code);
  if (s != NATS_OK && code == JSStreamNameExistErr)
    s = js_UpdateStream(nullptr, client_->js(), &config, nullptr, &code);
  if (s != NATS_OK) return client_->error(what, s, code);
  return {};
}

Result<void> NatsQueue::ensure_streams() {
  if (!client_->connected()) return fail(ErrorCode::failed, "{}", client_->trouble());
  const std::lock_guard lock(layout_mutex_);
  if (streams_there_) return {};
  const auto make = [&](const char* what, std::vector<std::string> subjects, auto&& settings) {
    jsStreamConfig c;
    jsStreamConfig_Init(&c);
    settings(c);
    const std::string name = at_.stream(what);
    return add_stream("a stream cannot be made", name, subjects, c);
  };
  const int64_t keep = nanoseconds(options_.keep_hours * 3600);
  const std::string& p = options_.prefix;
  DQ_CHECK(make("JOBS", {p + ".jobs.>"}, [](jsStreamConfig& c) {
    c.Retention = js_WorkQueuePolicy;
    c.Duplicates = kDedupWindow;
    c.AllowDirect = true;
  }));
  DQ_CHECK(make("RESULTS", {p + ".results.>"}, [&](jsStreamConfig& c) {
    c.MaxAge = keep;
    c.AllowDirect = true;
  }));
  DQ_CHECK(make("DEAD", {p + ".dead.>"}, [](jsStreamConfig& c) { c.AllowDirect = true; }));
  DQ_CHECK(make("STORY", {p + ".story.>"}, [&](jsStreamConfig& c) {
    c.MaxAge = keep;
    c.MaxMsgsPerSubject = 100;
    c.AllowDirect = true;
  }));
  jsStreamConfig c;
  jsStreamConfig_Init(&c);
  c.MaxAge = keep;
  c.AllowRollup = true;
  c.AllowDirect = true;
  c.Discard = js_DiscardNew;
  const std::string bucket = "$O." + p + "-pictures";
  DQ_CHECK(add_stream("the object store cannot be made", objects_.stream(), {bucket + ".C.>", bucket + ".M.>"}, c));
  streams_there_ = true;
  return {};
}

Result<void> NatsQueue::ensure_lane(const std::string& model, const std::string& size_class) {
  DQ_CHECK(ensure_streams());
  const std::string name = token(model) + "_" + token(size_class);
  const std::lock_guard lock(layout_mutex_);
  if (lanes_there_.count(name)) return {};
  const std::string filter = at_.lane(model, size_class) + ".>", stream = at_.stream("JOBS");
  jsConsumerConfig c;
  jsConsumerConfig_Init(&c);
  c.Durable = name.c_str();
  c.FilterSubject = filter.c_str();
  c.AckPolicy = js_AckExplicit;
  c.AckWait = nanoseconds(rules_.lease_seconds);
  c.MaxDeliver = rules_.attempts + kGiveBacks;
  c.MaxAckPending = kMostRunning;
  c.MaxWaiting = kMostWaiting;
  jsErrCode code{};
  natsStatus s = js_AddConsumer(nullptr, client_->js(), stream.c_str(), &c, nullptr, &code);
  if (s != NATS_OK && code == JSConsumerNameExistErr)
    s = js_UpdateConsumer(nullptr, client_->js(), stream.c_str(), &c, nullptr, &code);
  if (s != NATS_OK) return client_->error("a consumer cannot be made", s, code);
  lanes_there_.insert(name);
  return {};
}

/// Asks for the lane before making it: a thousand workers that start together must not each make every stream.
Result<natsSubscription*> NatsQueue::lane_subscription(const Want::Lane& lane) {
  const std::string name = token(lane.model) + "_" + token(lane.size_class);
  if (const auto it = lanes_.find(name); it != lanes_.end()) return it->second.get();
  const std::string filter = at_.lane(lane.model, lane.size_class) + ".>", stream = at_.stream("JOBS");
  jsSubOptions o;
  jsSubOptions_Init(&o);
  o.Stream = stream.c_str();
  o.Consumer = name.c_str();
  natsSubscription* sub = nullptr;
  jsErrCode code{};
  const auto bind = [&] {
    return js_PullSubscribe(&sub, client_->js(), filter.c_str(), name.c_str(), nullptr, &o, &code);
  };
  natsStatus s = bind();
  if (s == NATS_NOT_FOUND || code == JSStreamNotFoundErr || code == JSConsumerNotFoundErr) {
    DQ_CHECK(ensure_lane(lane.model, lane.size_class));
    s = bind();
  }
  if (s != NATS_OK) return client_->error("jobs cannot be pulled", s, code);
  lanes_[name].reset(sub);
  return sub;
}

void NatsQueue::forget_layout() {
  const std::lock_guard lock(layout_mutex_);
  streams_there_ = false;
  lanes_there_.clear();
}

}  // namespace danqing::server::nats

namespace danqing::server {

Result<std::unique_ptr<JobQueue>> open_nats_queue(const NatsOptions& options, const QueueRules& rules) {
  DQ_TRY(std::shared_ptr<nats::Client> client, nats::Client::connect(options));
  return std::unique_ptr<JobQueue>(std::make_unique<nats::NatsQueue>(std::move(client), options, rules));
}

std::string nats_text() { return std::string("libnats ") + nats_GetVersion(); }

}  // namespace danqing::server
