// One suite for every implementation of JobQueue.
#include <gmock/gmock.h>

#include <algorithm>
#include <mutex>

#include "nats_server.h"
#include "server/queue/nats_queue.h"
#include "server/queue/sqlite_queue.h"
#include "testing/testing.h"

namespace danqing::server {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

constexpr double kLease = 1.2;  // seconds
constexpr int kAttempts = 3;
const Want kMini{{{"mini", "s"}}, 1, {}};

Ticket ticket(const std::string& model = "mini", const std::string& size_class = "s") {
  static int64_t seq = 0;
  Ticket t;
  t.id = new_job_id();
  t.key = "anna";
  t.trace_id = std::string(32, 'a');
  t.origin = "here";
  t.size_class = size_class;
  t.seq = ++seq;
  t.created = now_seconds();
  t.spec.model = model;
  t.spec.request.prompts = {"猫"};
  t.spec.request.seeds = {UINT64_MAX};
  return t;
}

/// What a server would hear.
struct Heard {
  std::mutex mutex;
  std::vector<Update> updates;
  std::atomic<bool> takes{true};
  JobQueue::Listener listener() {
    return [this](const Update& u) {
      if (!takes) return false;
      const std::lock_guard lock(mutex);
      updates.push_back(u);
      return true;
    };
  }
  std::vector<Update> of(const std::string& id, Update::Kind kind) {
    const std::lock_guard lock(mutex);
    std::vector<Update> out;
    for (const Update& u : updates)
      if (u.id == id && u.kind == kind) out.push_back(u);
    return out;
  }
  bool waits_for(const std::string& id, Update::Kind kind, double seconds = 10) {
    for (const double until = now_seconds() + seconds; now_seconds() < until;) {
      if (!of(id, kind).empty()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }
};

class Contract : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!nats()) return reopen();
    server_ = std::make_unique<danqing::testing::NatsServer>(dir_.path());
    if (server_->address().empty()) GTEST_SKIP() << "nats-server cannot be started here (Debian: nats-server)";
    reopen();
  }
  void TearDown() override {
    if (queue_) queue_->stop();
  }
  bool nats() const { return std::string(GetParam()) == "nats"; }
  /// As after the end of the process.
  void reopen() {
    if (queue_) queue_->stop();
    queue_.reset();
    const QueueRules rules{kLease, kAttempts};
    if (nats()) {
      auto q = open_nats_queue(options(), rules);
      if (!q && q.error().code == ErrorCode::usage) GTEST_SKIP() << q.error().message;
      ASSERT_TRUE(q) << q.error().message;
      queue_ = std::move(*q);
    } else {
      DQ_ASSERT_OK(queue_, SqliteQueue::open((dir_ / "queue.sqlite").string(), rules));
    }
  }
  NatsOptions options() const {
    NatsOptions o;
    o.servers = {server_->address()};
    o.origin = "here";
    o.name = "test";
    return o;
  }
  Lease taken(const Want& want = kMini) {
    const double until = now_seconds() + 10;
    while (now_seconds() < until) {
      auto leases = queue_->take(want, 0.5);
      if (leases && !leases->empty()) return std::move((*leases)[0]);
    }
    ADD_FAILURE() << "nothing was lent";
    return {};
  }
  bool nothing(const Want& want = kMini) {
    const auto leases = queue_->take(want, 0.3);
    return leases && leases->empty();
  }
  /// The lease is kept for so long.
  void work(const Lease& l, double seconds) {
    for (const double until = now_seconds() + seconds; now_seconds() < until;) {
      queue_->extend(l);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }
  void expire() { std::this_thread::sleep_for(std::chrono::milliseconds(static_cast<int>(kLease * 1000) + 300)); }
  danqing::testing::TempDir dir_;
  std::unique_ptr<danqing::testing::NatsServer> server_;
  std::unique_ptr<JobQueue> queue_;
  Heard heard_;
};

Outcome done(const char* worker = "w") {
  Outcome o;
  o.worker = worker;
  o.timing = {{"total", 1.5}};
  o.notes = {"a note"};
  return o;
}

TEST_P(Contract, a_job_goes_once_through) {
  ASSERT_TRUE(queue_->listen(heard_.listener()));
  const Ticket t = ticket();
  DQ_ASSERT_OK(const bool fresh, queue_->submit(t));
  EXPECT_TRUE(fresh);
  const Lease l = taken();
  EXPECT_EQ(l.ticket.id, t.id);
  EXPECT_EQ(l.attempt, 1);
  EXPECT_EQ(l.ticket.trace_id, t.trace_id);
  EXPECT_EQ(l.ticket.spec.request.seeds, t.spec.request.seeds);
  EXPECT_EQ(l.ticket.spec.request.prompts, t.spec.request.prompts);
  DQ_ASSERT_OK(const bool first, queue_->finish(l, done()));
  EXPECT_TRUE(first);
  ASSERT_TRUE(heard_.waits_for(t.id, Update::Kind::ended));
  const Update u = heard_.of(t.id, Update::Kind::ended)[0];
  EXPECT_EQ(u.outcome.status, Status::done);
  EXPECT_EQ(u.outcome.worker, "w");
  EXPECT_EQ(u.outcome.timing["total"], 1.5);
  EXPECT_THAT(u.outcome.notes, ElementsAre("a note"));
  EXPECT_TRUE(nothing());
  expire();
  EXPECT_TRUE(nothing()) << "a finished job is not lent again";
  EXPECT_EQ(heard_.of(t.id, Update::Kind::ended).size(), 1u);
}

TEST_P(Contract, submitting_twice_is_once) {
  const Ticket t = ticket();
  EXPECT_TRUE(*queue_->submit(t));
  EXPECT_FALSE(*queue_->submit(t));
  const Lease l = taken();
  EXPECT_FALSE(*queue_->submit(t)) << "while it runs";
  EXPECT_TRUE(nothing());
  ASSERT_TRUE(queue_->finish(l, done()));
}

TEST_P(Contract, many_that_submit_the_same_at_once) {
  std::vector<Ticket> all;
  for (int i = 0; i < 10; ++i) all.push_back(ticket());
  std::atomic<int> fresh{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (const Ticket& t : all)
        if (const auto r = queue_->submit(t); r && *r) ++fresh;
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(fresh, 10);
  std::vector<std::string> ids;
  for (int i = 0; i < 10; ++i) {
    const Lease l = taken();
    ids.push_back(l.ticket.id);
    ASSERT_TRUE(queue_->finish(l, done()));
  }
  std::sort(ids.begin(), ids.end());
  EXPECT_EQ(std::unique(ids.begin(), ids.end()), ids.end());
  EXPECT_TRUE(nothing());
}

TEST_P(Contract, a_worker_takes_what_it_can_hold) {
  const Ticket small = ticket("mini", "s"), large = ticket("mini", "xl"), other = ticket("another model/1.0", "s");
  for (const Ticket& t : {large, other, small}) ASSERT_TRUE(queue_->submit(t));
  const Want want{{{"mini", "s"}, {"mini", "m"}}, 1, {}};
  EXPECT_EQ(taken(want).ticket.id, small.id);
  EXPECT_TRUE(nothing(want));
  EXPECT_EQ(taken({{{"another model/1.0", "s"}}, 1, {}}).ticket.id, other.id);
  EXPECT_EQ(taken({{{"mini", "xl"}}, 1, {}}).ticket.id, large.id);
}

TEST_P(Contract, older_jobs_come_first_and_the_order_is_known) {
  std::vector<std::string> ids;
  for (int i = 0; i < 5; ++i) {
    const Ticket t = ticket();
    ASSERT_TRUE(queue_->submit(t));
    ids.push_back(t.id);
  }
  EXPECT_EQ(queue_->order(), ids);
  for (const std::string& id : ids) EXPECT_EQ(taken().ticket.id, id);
}

TEST_P(Contract, a_lease_that_is_kept_stays_and_one_that_is_not_goes_on) {
  const Ticket t = ticket();
  ASSERT_TRUE(queue_->submit(t));
  const Lease first = taken();
  work(first, kLease * 2);
  EXPECT_TRUE(nothing()) << "it was extended";
  EXPECT_FALSE(first.flags->cancelled);
  expire();
  const Lease second = taken();
  EXPECT_EQ(second.ticket.id, t.id);
  EXPECT_EQ(second.attempt, 2);
  DQ_ASSERT_OK(const bool counts, queue_->finish(second, done("second")));
  EXPECT_TRUE(counts);
  DQ_ASSERT_OK(const bool again, queue_->finish(first, done("first")));
  EXPECT_FALSE(again) << "there is one end";
  EXPECT_TRUE(nothing());
}

TEST_P(Contract, giving_back_is_no_attempt) {
  ASSERT_TRUE(queue_->listen(heard_.listener()));
  const Ticket t = ticket();
  ASSERT_TRUE(queue_->submit(t));
  for (int i = 0; i < kAttempts + 2; ++i) {
    const Lease l = taken();
    EXPECT_EQ(l.attempt, 1) << i;
    ASSERT_TRUE(queue_->give_back(l));
  }
  EXPECT_TRUE(heard_.waits_for(t.id, Update::Kind::given_back));
  const Lease l = taken();
  ASSERT_TRUE(queue_->finish(l, done()));
}

TEST_P(Contract, a_poison_job_becomes_a_dead_letter_with_its_story) {
  ASSERT_TRUE(queue_->listen(heard_.listener()));
  const Ticket t = ticket();
  ASSERT_TRUE(queue_->submit(t));
  for (int i = 1; i <= kAttempts; ++i) {
    const Lease l = taken();
    EXPECT_EQ(l.attempt, i);
    if (i < kAttempts)
      ASSERT_TRUE(queue_->give_back(l, true)) << "the device was lost";
    else
      expire();  // the worker died
  }
  for (int i = 0; i < 20 && heard_.of(t.id, Update::Kind::ended).empty(); ++i) EXPECT_TRUE(nothing());
  ASSERT_TRUE(heard_.waits_for(t.id, Update::Kind::ended));
  const Outcome o = heard_.of(t.id, Update::Kind::ended)[0].outcome;
  EXPECT_EQ(o.status, Status::failed);
  EXPECT_EQ(o.code, "interrupted");
  EXPECT_THAT(o.message, ::testing::HasSubstr(t.id));
  DQ_ASSERT_OK(const std::vector<DeadJob> dead, queue_->dead(10));
  ASSERT_EQ(dead.size(), 1u);
  EXPECT_EQ(dead[0].ticket.id, t.id);
  EXPECT_EQ(dead[0].ticket.spec.request.prompts, t.spec.request.prompts);
  EXPECT_NEAR(dead[0].when, now_seconds(), 60);
  int started = 0, lost = 0;
  for (const Json& line : dead[0].story) {
    started += line.at("event") == "started";
    lost += line.at("event") == "device lost";
  }
  EXPECT_EQ(started, kAttempts);
  EXPECT_EQ(lost, kAttempts - 1);
  EXPECT_EQ(queue_->stats()->dead, 1u);
}

TEST_P(Contract, dead_letters_can_be_replayed_and_dropped) {
  ASSERT_TRUE(queue_->listen(heard_.listener()));
  const Ticket a = ticket(), b = ticket();
  for (const Ticket& t : {a, b}) {
    ASSERT_TRUE(queue_->submit(t));
    for (int i = 0; i < kAttempts; ++i) ASSERT_TRUE(queue_->give_back(taken(), true));
    for (int i = 0; i < 20 && heard_.of(t.id, Update::Kind::ended).empty(); ++i) EXPECT_TRUE(nothing());
    ASSERT_TRUE(heard_.waits_for(t.id, Update::Kind::ended));
  }
  EXPECT_FALSE(*queue_->replay(new_job_id()));
  EXPECT_FALSE(*queue_->drop(new_job_id()));
  DQ_ASSERT_OK(const auto found, queue_->find_dead(b.id));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->ticket.id, b.id);
  EXPECT_TRUE(*queue_->drop(b.id));
  EXPECT_FALSE(*queue_->find_dead(b.id));
  EXPECT_TRUE(*queue_->replay(a.id));
  const Lease l = taken();
  EXPECT_EQ(l.ticket.id, a.id);
  EXPECT_EQ(l.attempt, 1) << "a fresh story";
  DQ_ASSERT_OK(const bool counts, queue_->finish(l, done()));
  EXPECT_TRUE(counts);
  for (int i = 0; i < 100 && heard_.of(a.id, Update::Kind::ended).size() < 2; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  ASSERT_EQ(heard_.of(a.id, Update::Kind::ended).size(), 2u);
  EXPECT_EQ(heard_.of(a.id, Update::Kind::ended)[1].outcome.status, Status::done);
  EXPECT_TRUE(queue_->dead(10)->empty());
}

TEST_P(Contract, cancelling_what_waits) {
  ASSERT_TRUE(queue_->listen(heard_.listener()));
  const Ticket t = ticket();
  ASSERT_TRUE(queue_->submit(t));
  Outcome how;
  how.status = Status::cancelled;
  how.code = "cancelled";
  ASSERT_TRUE(queue_->cancel(t, how));
  EXPECT_TRUE(nothing());
  ASSERT_TRUE(heard_.waits_for(t.id, Update::Kind::ended));
  EXPECT_EQ(heard_.of(t.id, Update::Kind::ended)[0].outcome.status, Status::cancelled);
  EXPECT_THAT(queue_->order(), ElementsAre());
  ASSERT_TRUE(queue_->cancel(t, how)) << "twice is the same";
}

TEST_P(Contract, cancelling_what_runs_reaches_the_worker) {
  const Ticket t = ticket();
  ASSERT_TRUE(queue_->submit(t));
  const Lease l = taken();
  Outcome how;
  how.status = Status::cancelled;
  ASSERT_TRUE(queue_->cancel(t, how));
  const double start = now_seconds();
  while (!l.flags->cancelled && now_seconds() - start < 5) work(l, 0.01);
  EXPECT_TRUE(l.flags->cancelled);
  EXPECT_LT(now_seconds() - start, 0.5);
  DQ_ASSERT_OK(const bool counts, queue_->finish(l, done()));
  EXPECT_FALSE(counts);
  ASSERT_TRUE(queue_->give_back(l)) << "nothing is left to give back";
  expire();
  EXPECT_TRUE(nothing());
}

TEST_P(Contract, progress_previews_and_pictures_arrive) {
  ASSERT_TRUE(queue_->listen(heard_.listener()));
  const Ticket t = ticket();
  ASSERT_TRUE(queue_->submit(t));
  const Lease l = taken();
  EXPECT_FALSE(l.flags->previews);
  queue_->want_previews(t.id, true);
  for (int i = 0; i < 100 && !l.flags->previews; ++i) work(l, 0.02);
  EXPECT_TRUE(l.flags->previews);
  Update u;
  u.id = t.id;
  u.kind = Update::Kind::running;
  u.together = 1;
  queue_->tell(l, u);
  u.kind = Update::Kind::progress;
  u.stage = "denoise", u.step = 3, u.steps = 8, u.seconds_per_step = 0.25;
  queue_->tell(l, u);
  u.kind = Update::Kind::preview;
  u.n = 0;
  auto image = std::make_shared<Image>();
  image->width = image->height = 8;
  image->pixels.assign(8 * 8 * 3, 200);
  u.preview = image;
  queue_->tell(l, u);
  Update p;
  p.id = t.id;
  p.kind = Update::Kind::picture;
  p.picture.job = t.id;
  p.picture.seed = UINT64_MAX;
  p.picture.settings = {{"prompt", "猫"}};
  for (int i = 0; i < 300'000; ++i) p.bytes += static_cast<char>(i * 7 + i / 251);
  p.thumbnail = "small";
  ASSERT_TRUE(queue_->keep(l, p));
  Outcome o = done();
  o.pictures = {p.picture};
  ASSERT_TRUE(queue_->finish(l, o));
  for (const auto kind : {Update::Kind::running, Update::Kind::progress, Update::Kind::preview, Update::Kind::picture,
                          Update::Kind::ended})
    ASSERT_TRUE(heard_.waits_for(t.id, kind)) << static_cast<int>(kind);
  const Update step = heard_.of(t.id, Update::Kind::progress)[0];
  EXPECT_EQ(step.stage, "denoise");
  EXPECT_EQ(step.step, 3);
  EXPECT_EQ(step.seconds_per_step, 0.25);
  ASSERT_TRUE(heard_.of(t.id, Update::Kind::preview)[0].preview);
  EXPECT_EQ(heard_.of(t.id, Update::Kind::preview)[0].preview->width, 8);
  const auto pictures = heard_.of(t.id, Update::Kind::picture);
  ASSERT_EQ(pictures.size(), 1u);
  EXPECT_EQ(pictures[0].bytes, p.bytes);
  EXPECT_EQ(pictures[0].thumbnail, "small");
  EXPECT_EQ(pictures[0].picture.seed, UINT64_MAX);
  EXPECT_EQ(pictures[0].picture.settings["prompt"], "猫");
}

TEST_P(Contract, what_waits_survives_a_restart_and_what_ended_meanwhile_is_told) {
  const Ticket ended = ticket(), ran = ticket(), waits = ticket();
  for (const Ticket& t : {ended, ran, waits}) ASSERT_TRUE(queue_->submit(t));
  {
    const Lease l = taken();
    ASSERT_EQ(l.ticket.id, ended.id);
    ASSERT_TRUE(queue_->finish(l, done()));
  }
  ASSERT_EQ(taken().ticket.id, ran.id);
  reopen();
  expire();
  ASSERT_TRUE(queue_->listen(heard_.listener()));
  EXPECT_TRUE(heard_.waits_for(ended.id, Update::Kind::ended));
  EXPECT_FALSE(*queue_->submit(waits)) << "it is still there";
  std::vector<std::string> ids;
  for (int i = 0; i < 2; ++i) {
    const Lease l = taken();
    ids.push_back(l.ticket.id);
    EXPECT_EQ(l.attempt, l.ticket.id == ran.id ? 2 : 1);
    ASSERT_TRUE(queue_->finish(l, done()));
  }
  EXPECT_THAT(ids, UnorderedElementsAre(waits.id, ran.id));
  EXPECT_TRUE(nothing());
}

TEST_P(Contract, figures) {
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(queue_->submit(ticket()));
  ASSERT_TRUE(queue_->submit(ticket("mini", "m")));
  const Lease l = taken();
  DQ_ASSERT_OK(const QueueStats s, queue_->stats());
  EXPECT_EQ(s.waiting, 3u);
  EXPECT_EQ(s.running, 1u);
  EXPECT_EQ(s.dead, 0u);
  ASSERT_EQ(s.lanes.size(), 2u);
  for (const auto& lane : s.lanes) {
    EXPECT_EQ(lane.model, "mini");
    EXPECT_EQ(lane.waiting, lane.size_class == "s" ? 2u : 1u);
    EXPECT_EQ(lane.running, lane.size_class == "s" ? 1u : 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Queues, Contract, ::testing::Values("sqlite", "nats"),
                         [](const auto& kind) { return std::string(kind.param); });

}  // namespace
}  // namespace danqing::server
