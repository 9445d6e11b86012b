// A thousand pretended workers on the real queue: a real nats-server, the real NatsQueue of `danqing serve` and
// `danqing worker`; only the drawing is a sleep. Prints what the queue costs and where it bends. docs/scale.md
// explains.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <numeric>
#include <random>
#include <thread>

#include "queue/nats_server.h"
#include "server/ops/ecs_log.h"
#include "server/ops/process.h"
#include "server/queue/nats_queue.h"
#include "testing/testing.h"

namespace {

using namespace danqing;
using namespace danqing::server;

struct Options {
  int workers = 1000, servers = 1, steps = 8, lanes = 3;
  double job_seconds = 20, load = 0.8, seconds = 30, lease = 30;
  size_t picture_bytes = 1'500'000;
  bool json = false;
};

/// Figures from many threads.
struct Series {
  std::mutex mutex;
  std::vector<double> values;
  void add(double v) {
    const std::lock_guard lock(mutex);
    values.push_back(v);
  }
  double at(double part) {
    const std::lock_guard lock(mutex);
    if (values.empty()) return 0;
    const auto n = static_cast<size_t>(part * static_cast<double>(values.size() - 1));
    std::nth_element(values.begin(), values.begin() + static_cast<long>(n), values.end());
    return values[n];
  }
};

struct Figures {
  Series submit, wait, keep, finish;  // seconds
  std::atomic<uint64_t> submitted{0}, refused{0}, done{0}, ended{0}, errors{0};
};

/// Seconds of processor time of a process.
double cpu_seconds(pid_t pid) {
  std::ifstream f("/proc/" + std::to_string(pid) + "/stat");
  std::string text((std::istreambuf_iterator<char>(f)), {});
  text = text.substr(text.rfind(')') + 2);
  std::istringstream words(text);
  std::string w;
  double sum = 0;
  for (int i = 3; words >> w; ++i)
    if (i == 14 || i == 15) sum += std::stod(w);
  return sum / static_cast<double>(sysconf(_SC_CLK_TCK));
}

uint64_t resident(pid_t pid) {
  std::ifstream f("/proc/" + std::to_string(pid) + "/statm");
  uint64_t all = 0, in = 0;
  f >> all >> in;
  return in * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

const char* kClasses[] = {"s", "m", "l", "xl"};

NatsOptions options_of(const std::string& address, const std::string& origin, const std::string& name) {
  NatsOptions o;
  o.servers = {address};
  o.origin = origin;
  o.name = name;
  return o;
}

void sleep(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

/// What engine/worker does, without an engine.
void work(const Options& o, JobQueue& queue, const std::atomic<bool>& stop, Figures& figures, unsigned seed) {
  Want want;
  for (int i = 0; i < o.lanes; ++i) want.lanes.push_back({"model", kClasses[i]});
  std::minstd_rand rng(seed);
  const std::string bytes(o.picture_bytes, 'p'), thumbnail(8'000, 't');
  while (!stop) {
    auto leases = queue.take(want, 1);
    if (!leases) {
      if (figures.errors++ < 3) std::fprintf(stderr, "%s\n", leases.error().message.c_str());
      sleep(0.5);
      continue;
    }
    for (const Lease& l : *leases) {
      figures.wait.add(now_seconds() - l.ticket.created);
      Update u;
      u.id = l.ticket.id;
      u.kind = Update::Kind::running;
      queue.tell(l, u);
      u.kind = Update::Kind::progress;
      u.stage = "denoise", u.steps = o.steps;
      const double step = o.job_seconds / o.steps * std::uniform_real_distribution<>(0.9, 1.1)(rng);
      for (u.step = 1; u.step <= o.steps; ++u.step) {
        for (double left = step; left > 0; left -= 1) {
          sleep(std::min(left, 1.0));
          queue.extend(l);
        }
        queue.tell(l, u);
      }
      Outcome outcome;
      double start = now_seconds();
      if (o.picture_bytes > 0) {
        Update p;
        p.id = l.ticket.id;
        p.kind = Update::Kind::picture;
        p.picture.job = l.ticket.id;
        p.picture.settings = Json::object();
        p.bytes = bytes, p.thumbnail = thumbnail;
        while (!stop && !queue.keep(l, p)) ++figures.errors, sleep(0.3);
        outcome.pictures = {p.picture};
        figures.keep.add(now_seconds() - start);
      }
      start = now_seconds();
      Result<bool> first = queue.finish(l, outcome);
      while (!first && !stop) {
        ++figures.errors;
        sleep(0.3);
        first = queue.finish(l, outcome);
      }
      if (!first) return;
      figures.finish.add(now_seconds() - start);
      if (*first) ++figures.done;
    }
  }
}

/// What `danqing serve` does: submits at a rate, hears the ends.
void serve(const Options& o, JobQueue& queue, const std::atomic<bool>& stop, Figures& figures, double rate,
           unsigned seed) {
  (void)queue.listen([&](const Update& u) {
    if (u.kind == Update::Kind::ended) ++figures.ended;
    return true;
  });
  std::mt19937 rng(seed);
  std::exponential_distribution<> pause(rate);
  double next = now_seconds();
  int64_t seq = 0;
  while (!stop) {
    next += pause(rng);
    if (const double now = now_seconds(); next > now) sleep(std::min(next - now, 1.0));
    if (stop) break;
    Ticket t;
    t.id = new_job_id();
    t.key = "k";
    t.trace_id = std::string(32, 'a');
    t.size_class = kClasses[rng() % static_cast<unsigned>(o.lanes)];
    t.seq = ++seq;
    t.created = now_seconds();
    t.spec.model = "model";
    t.spec.request.prompts = {"a lighthouse on a cliff in the evening, seen from the sea, in oil"};
    t.spec.request.seeds = {rng()};
    const auto fresh = queue.submit(t);
    figures.submit.add(now_seconds() - t.created);
    fresh ? ++figures.submitted : ++figures.refused;
  }
  queue.stop();
}

int run(const Options& o) {
  configure_log(false, log::Level::error);
  raise_file_limit();
  const danqing::testing::TempDir dir;
  danqing::testing::NatsServer nats(dir.path());
  if (nats.address().empty()) {
    std::fprintf(stderr, "nats-server cannot be started (Debian: nats-server)\n");
    return 1;
  }
  Figures figures;
  std::atomic<bool> stop_servers{false}, stop_workers{false};
  std::vector<std::unique_ptr<JobQueue>> queues;
  const auto open = [&](const std::string& origin, const std::string& name) -> JobQueue* {
    auto q = open_nats_queue(options_of(nats.address(), origin, name), {o.lease, 5});
    if (!q) {
      std::fprintf(stderr, "%s\n", q.error().message.c_str());
      return nullptr;
    }
    queues.push_back(std::move(*q));
    return queues.back().get();
  };
  std::vector<std::thread> workers, servers;
  double start = now_seconds();
  for (int i = 0; i < o.workers; ++i) {
    JobQueue* q = open("", "w" + std::to_string(i));
    if (!q) return 1;
    workers.emplace_back([&, q, i] { work(o, *q, stop_workers, figures, static_cast<unsigned>(i) + 1); });
  }
  const double connected = now_seconds() - start;
  sleep(3);
  const double idle_from = now_seconds(), idle_cpu = cpu_seconds(nats.pid());
  sleep(5);
  const double idle = (cpu_seconds(nats.pid()) - idle_cpu) / (now_seconds() - idle_from);
  const double rate = o.load * o.workers / o.job_seconds;
  for (int i = 0; i < o.servers; ++i) {
    JobQueue* q = open("server" + std::to_string(i), "server");
    if (!q) return 1;
    servers.emplace_back(
        [&, q, i] { serve(o, *q, stop_servers, figures, rate / o.servers, static_cast<unsigned>(i)); });
  }
  sleep(o.job_seconds * 1.5);  // until the fleet is in its stride
  const uint64_t done = figures.done, ended = figures.ended;
  const double cpu = cpu_seconds(nats.pid()), own = cpu_seconds(getpid());
  start = now_seconds();
  sleep(o.seconds);
  const double span = now_seconds() - start;
  const double done_rate = static_cast<double>(figures.done - done) / span,
               ended_rate = static_cast<double>(figures.ended - ended) / span;
  const double busy = (cpu_seconds(nats.pid()) - cpu) / span, ours = (cpu_seconds(getpid()) - own) / span;
  const uint64_t memory = resident(nats.pid());
  const auto stats = queues[0]->stats();
  const Json j{{"workers", o.workers},
               {"servers", o.servers},
               {"job_seconds", o.job_seconds},
               {"picture_bytes", o.picture_bytes},
               {"asked_per_second", rate},
               {"drawn_per_second", done_rate},
               {"heard_per_second", ended_rate},
               {"waiting", stats ? Json(stats->waiting) : Json()},
               {"running", stats ? Json(stats->running) : Json()},
               {"submit_p50", figures.submit.at(0.5)},
               {"submit_p99", figures.submit.at(0.99)},
               {"wait_p50", figures.wait.at(0.5)},
               {"wait_p99", figures.wait.at(0.99)},
               {"keep_p50", figures.keep.at(0.5)},
               {"keep_p99", figures.keep.at(0.99)},
               {"finish_p50", figures.finish.at(0.5)},
               {"finish_p99", figures.finish.at(0.99)},
               {"errors", figures.errors.load()},
               {"refused", figures.refused.load()},
               {"connect_seconds", connected},
               {"nats_cpus_idle", idle},
               {"nats_cpus", busy},
               {"simulation_cpus", ours},
               {"nats_resident_bytes", memory}};
  if (o.json)
    std::printf("%s\n", j.dump().c_str());
  else
    for (const auto& [key, value] : j.items()) std::printf("%-20s %s\n", key.c_str(), value.dump().c_str());
  std::fflush(stdout);
  stop_servers = true;
  for (std::thread& t : servers) t.join();
  stop_workers = true;
  for (std::thread& t : workers) t.join();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  CLI::App app{"Pretended workers on the real queue; docs/scale.md"};
  app.add_option("--workers", o.workers, "Workers, each with a connection of its own")->capture_default_str();
  app.add_option("--servers", o.servers, "Servers that submit and hear")->capture_default_str();
  app.add_option("--job-seconds", o.job_seconds, "How long a picture takes")->capture_default_str();
  app.add_option("--steps", o.steps, "Steps of a picture: progress messages")->capture_default_str();
  app.add_option("--lanes", o.lanes, "Size classes that each worker takes")
      ->check(CLI::Range(1, 4))
      ->capture_default_str();
  app.add_option("--load", o.load, "Jobs asked for, as a part of what the workers can draw")->capture_default_str();
  app.add_option("--seconds", o.seconds, "How long it is measured")->capture_default_str();
  app.add_option("--picture-bytes", o.picture_bytes, "Size of a picture; 0 = none is stored")->capture_default_str();
  app.add_flag("--json", o.json, "One line of JSON");
  CLI11_PARSE(app, argc, argv);
  return run(o);
}
