// danqing queue: figures, and the jobs that nobody could draw.
#include <unistd.h>

#include <cstdio>
#include <ctime>
#include <filesystem>

#include "base/text.h"
#include "base/try.h"
#include "commands.h"
#include "server/ops/ecs_log.h"
#include "server/queue/open_queue.h"
#include "server/queue/sqlite_queue.h"

namespace danqing::app {
namespace {

using server::DeadJob;
using server::JobQueue;

struct Options {
  server::FlagValues flags;
  std::string id;
  bool json = false, all = false;
};

constexpr size_t kMost = 100'000;

/// The queue of the settings, reached.
Result<std::unique_ptr<JobQueue>> open(const Options& o) {
  DQ_TRY(server::Config config, server::load_config(o.flags));
  config.log_level = "error";
  if (config.queue.empty()) {
    const auto path = std::filesystem::path(config.data) / "jobs.sqlite";
    std::error_code ec;
    if (!std::filesystem::exists(path, ec))
      return bad_input(
          "[queue] there is no {}: give --queue nats://HOST:PORT, or --data DIR of a server on this machine",
          path.string());
    DQ_TRY(std::unique_ptr<JobQueue> queue,
           server::SqliteQueue::open(path.string(), {}, server::SqliteQueue::Use::look));
    return queue;
  }
  server::configure_log(config.log_format == "json", log::Level::error);
  DQ_TRY(std::unique_ptr<JobQueue> queue, server::open_queue(config, "", ""));
  for (int i = 0; i < 50 && !queue->trouble().empty() && !queue->refused(); ++i) ::usleep(100'000);
  if (const std::string why = queue->trouble(); !why.empty()) return fail(ErrorCode::failed, "{}", why);
  return queue;
}

std::string time_text(double seconds) {
  const auto t = static_cast<std::time_t>(seconds);
  std::tm utc{};
  gmtime_r(&t, &utc);
  char out[32];
  std::strftime(out, sizeof out, "%Y-%m-%d %H:%M:%SZ", &utc);
  return out;
}

Result<int> stats(const Options& o) {
  DQ_TRY(const std::unique_ptr<JobQueue> queue, open(o));
  DQ_TRY(const server::QueueStats s, queue->stats());
  if (o.json) {
    std::printf("%s\n", dump_json(server::to_json(s), 2).c_str());
    return 0;
  }
  std::printf("%s: %llu waiting, %llu running, %llu dead\n", s.where.c_str(),
              static_cast<unsigned long long>(s.waiting), static_cast<unsigned long long>(s.running),
              static_cast<unsigned long long>(s.dead));
  if (!s.lanes.empty()) std::printf("%-28s %-5s %9s %9s %9s\n", "model", "class", "waiting", "running", "again");
  for (const auto& l : s.lanes)
    std::printf("%-28s %-5s %9llu %9llu %9llu\n", one_line(l.model, 28).c_str(), l.size_class.c_str(),
                static_cast<unsigned long long>(l.waiting), static_cast<unsigned long long>(l.running),
                static_cast<unsigned long long>(l.again));
  return 0;
}

Result<int> list(const Options& o) {
  DQ_TRY(const std::unique_ptr<JobQueue> queue, open(o));
  DQ_TRY(const std::vector<DeadJob> dead, queue->dead(kMost));
  if (o.json) {
    Json all = Json::array();
    for (const DeadJob& d : dead) all.push_back(server::to_json(d));
    std::printf("%s\n", dump_json(all, 2).c_str());
    return 0;
  }
  for (const DeadJob& d : dead)
    std::printf("%s  %s  %s  %s\n", d.ticket.id.c_str(), time_text(d.when).c_str(),
                one_line(d.ticket.spec.model, 30).c_str(), one_line(d.reason, 120).c_str());
  if (dead.empty()) std::printf("no dead jobs\n");
  return 0;
}

Error unknown(const std::string& id) {
  return fail(ErrorCode::failed, "[queue] there is no dead job {} (danqing queue dead list)", one_line(id, 60));
}

Result<int> show(const Options& o) {
  DQ_TRY(const std::unique_ptr<JobQueue> queue, open(o));
  DQ_TRY(const std::optional<DeadJob> d, queue->find_dead(o.id));
  if (!d) return unknown(o.id);
  std::printf("%s\n", dump_json(server::to_json(*d), 2).c_str());
  return 0;
}

/// `replay` and `drop`: one job, or all.
Result<int> each(const Options& o, Result<bool> (JobQueue::*act)(const std::string&), const char* done) {
  DQ_TRY(const std::unique_ptr<JobQueue> queue, open(o));
  if (o.all == !o.id.empty()) return usage_error("[queue] expected one job's id, or --all");
  if (!o.all) {
    DQ_TRY(const bool there, (*queue.*act)(o.id));
    if (!there) return unknown(o.id);
    std::printf("%s %s\n", o.id.c_str(), done);
    return 0;
  }
  DQ_TRY(const std::vector<DeadJob> dead, queue->dead(kMost));
  for (const DeadJob& d : dead) DQ_CHECK((*queue.*act)(d.ticket.id));
  std::printf("%zu jobs %s\n", dead.size(), done);
  return 0;
}

CLI::App* add(CLI::App& parent, const char* name, const char* help, const std::shared_ptr<Options>& o) {
  CLI::App* c = parent.add_subcommand(name, help);
  server::add_flags(*c, o->flags, [](const std::string& key) {
    return key == "data" || (key.rfind("queue", 0) == 0 && key != "queue_size" && key != "queue_per_key");
  });
  return c;
}

bool is_id(const std::string& text) { return server::is_job_id(text); }

}  // namespace

void add_queue(CLI::App& app, Command& command) {
  auto o = std::make_shared<Options>();
  CLI::App* q = app.add_subcommand("queue", "Look at a queue, and at the jobs that nobody could draw");
  q->require_subcommand(1);
  q->footer(
      "Examples:\n"
      "  danqing queue stats --queue nats://queue:4222\n"
      "  danqing queue dead list --data danqing-data            a single machine's own queue\n"
      "  danqing queue dead show job_0123456789abcdef01234567 --queue nats://queue:4222\n"
      "  danqing queue dead replay --all --queue nats://queue:4222");
  CLI::App* s = add(*q, "stats", "Jobs that wait and run, by model and size class", o);
  s->add_flag("--json", o->json, "Print JSON");
  s->callback([o, &command] { command = [o] { return stats(*o); }; });
  CLI::App* d = q->add_subcommand("dead", "Jobs that ended several workers");
  d->require_subcommand(1);
  CLI::App* l = add(*d, "list", "All of them, oldest first", o);
  l->add_flag("--json", o->json, "Print JSON, with their stories");
  l->callback([o, &command] { command = [o] { return list(*o); }; });
  const auto id = [&](CLI::App* c, bool required) {
    CLI::Option* option = c->add_option("id", o->id, "The job");
    option->check([](const std::string& text) { return is_id(text) ? "" : "expected job_ and 24 hex digits"; });
    if (required)
      option->required();
    else
      c->add_flag("--all", o->all, "All of them");
  };
  CLI::App* w = add(*d, "show", "One of them: the request, and what happened", o);
  id(w, true);
  w->callback([o, &command] { command = [o] { return show(*o); }; });
  CLI::App* r = add(*d, "replay", "Put it back into the queue", o);
  id(r, false);
  r->callback([o, &command] { command = [o] { return each(*o, &JobQueue::replay, "waiting again"); }; });
  CLI::App* x = add(*d, "drop", "Forget it; the job stays failed", o);
  id(x, false);
  x->callback([o, &command] { command = [o] { return each(*o, &JobQueue::drop, "dropped"); }; });
}

}  // namespace danqing::app
