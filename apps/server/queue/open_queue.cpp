#include "server/queue/open_queue.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/file.h"
#include "base/text.h"
#include "base/try.h"
#include "server/ops/ecs_log.h"
#include "server/queue/nats_queue.h"
#include "server/queue/sqlite_queue.h"

namespace danqing::server {
namespace {

/// Content of a file without the line's end.
Result<std::string> secret_of(const std::string& file) {
  DQ_TRY(std::string text, read_text(file, 1 << 16));
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  if (text.empty()) return bad_input("[queue] {} is empty", file);
  return text;
}

std::string from_environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

Result<std::vector<std::string>> addresses(const std::string& text) {
  std::vector<std::string> out;
  std::string scheme = "nats://";
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    std::string word = text.substr(at, comma - at);
    at = comma + 1;
    if (const size_t colon = word.find("://"); colon != std::string::npos) {
      scheme = word.substr(0, colon + 3);
      word = word.substr(colon + 3);
    }
    if (scheme != "nats://" && scheme != "tls://")
      return usage_error("[queue] --queue expected nats://HOST:PORT or tls://HOST:PORT, got '{}'", one_line(text, 80));
    if (word.find('@') != std::string::npos)
      return usage_error(
          "[queue] --queue must not carry a password (others see it in the list of processes): use --queue-user with "
          "--queue-password-file, --queue-token-file or --queue-creds");
    const bool good = !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
      return std::isalnum(c) || c == '.' || c == ':' || c == '-' || c == '_' || c == '[' || c == ']';
    });
    if (!good) return usage_error("[queue] --queue expected nats://HOST:PORT[,...], got '{}'", one_line(text, 80));
    out.push_back(scheme + word);
  }
  return out;
}

Result<NatsOptions> nats_options(const Config& c, const std::string& origin) {
  NatsOptions o;
  DQ_TRY(o.servers, addresses(c.queue));
  o.prefix = c.queue_prefix;
  const bool good =
      !o.prefix.empty() && o.prefix.size() <= 32 && std::all_of(o.prefix.begin(), o.prefix.end(), [](unsigned char ch) {
        return std::islower(ch) || std::isdigit(ch) || ch == '-' || ch == '_';
      });
  if (!good)
    return usage_error("[queue] --queue-prefix expected up to 32 of a-z 0-9 - _, got '{}'",
                       one_line(c.queue_prefix, 60));
  for (const std::string& word : c.size_classes) {
    const auto& known = size_classes();
    if (std::none_of(known.begin(), known.end(), [&](const SizeClass& k) { return word == k.name; }))
      return usage_error("[queue] --size-classes expected s, m, l or xl, got '{}'", one_line(word, 60));
  }
  o.origin = origin;
  o.name = worker_name(c);
  o.creds = c.queue_creds;
  if (!o.creds.empty()) DQ_CHECK(secret_of(o.creds));
  o.user = c.queue_user;
  o.password = from_environment("DANQING_QUEUE_PASSWORD");
  if (!c.queue_password_file.empty()) {
    DQ_TRY(o.password, secret_of(c.queue_password_file));
  }
  o.token = from_environment("DANQING_QUEUE_TOKEN");
  if (!c.queue_token_file.empty()) {
    DQ_TRY(o.token, secret_of(c.queue_token_file));
  }
  o.tls_ca = c.queue_tls_ca, o.tls_cert = c.queue_tls_cert, o.tls_key = c.queue_tls_key;
  if (o.tls_cert.empty() != o.tls_key.empty())
    return usage_error("[queue] --queue-tls-cert and --queue-tls-key belong together");
  for (const std::string& f : {o.tls_ca, o.tls_cert, o.tls_key})
    if (!f.empty()) DQ_CHECK(secret_of(f));
  o.keep_hours = c.queue_keep_hours;
  o.replicas = c.queue_replicas;
  return o;
}

}  // namespace

Result<std::unique_ptr<JobQueue>> open_queue(const Config& c, const std::string& database, const std::string& origin) {
  const QueueRules rules{c.queue_lease_seconds, c.queue_attempts};
  if (c.queue.empty()) {
    DQ_TRY(std::unique_ptr<JobQueue> queue, SqliteQueue::open(database, rules));
    return queue;
  }
  DQ_TRY(const NatsOptions options, nats_options(c, origin));
  return open_nats_queue(options, rules);
}

std::string worker_name(const Config& config) {
  if (!config.worker_name.empty()) return one_line(config.worker_name, 60);
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  return fmt::format("{}-{}", host, ::getpid());
}

std::vector<Want::Lane> wanted_lanes(const Config& config, Models& models) {
  std::vector<std::string> left_out;
  std::vector<Want::Lane> lanes = lanes_that_fit(models, left_out);
  if (!config.size_classes.empty()) {
    lanes.clear();
    left_out.clear();
    for (const ModelState& m : models.list())
      for (const std::string& c : config.size_classes) lanes.push_back({m.name, c});
  }
  for (const std::string& line : left_out)
    log_event(log::Level::warning, "jobs of this size are left to others: " + line,
              {{"event.action", "class-left-out"}});
  return lanes;
}

}  // namespace danqing::server
