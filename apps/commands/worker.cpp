// danqing worker: draws for servers that share its queue.
#include <set>

#include "base/try.h"
#include "commands.h"
#include "server/work.h"

namespace danqing::app {
namespace {

/// Settings that only a server has a use for.
const std::set<std::string> kServerOnly{"host",
                                        "port",
                                        "data",
                                        "api_key_file",
                                        "allow_public",
                                        "cors",
                                        "allowed_host",
                                        "max_steps",
                                        "max_images",
                                        "max_side",
                                        "max_pixels",
                                        "max_prompt_bytes",
                                        "queue_size",
                                        "queue_per_key",
                                        "deadline_seconds",
                                        "max_body",
                                        "max_connections",
                                        "http_threads",
                                        "idle_seconds",
                                        "body_seconds",
                                        "write_seconds",
                                        "keep_days",
                                        "keep_bytes",
                                        "enhancer_url",
                                        "enhancer_model",
                                        "enhancer_key_file",
                                        "enhancer_seconds",
                                        "also_work",
                                        "guidance_scale",
                                        "log_prompts"};

Result<int> run(const server::FlagValues& flags, bool print_config) {
  DQ_TRY(const server::Config config, server::load_config(flags));
  if (!print_config) return server::work(config);
  std::printf("%s\n", dump_json(server::to_json(config), 2).c_str());
  return 0;
}

}  // namespace

void add_worker(CLI::App& app, Command& command) {
  struct Options {
    server::FlagValues flags;
    bool print_config = false;
  };
  auto o = std::make_shared<Options>();
  CLI::App* c = app.add_subcommand("worker", "Draw jobs from a queue that several machines share");
  c->footer(
      "The server is started with the same --queue and the same models under the same names (docs/scale.md).\n"
      "Examples:\n"
      "  danqing worker --queue nats://queue:4222 -m ERNIE-Image\n"
      "  danqing worker --queue tls://queue:4222 --queue-tls-ca ca.pem --queue-creds worker.creds -m "
      "base=/models/ERNIE-Image\n"
      "Exit codes: 0 stopped, 1 the queue refuses it or a job's end could not be told, 4 no job would fit, 5 device "
      "lost.");
  c->add_flag("--print-config", o->print_config, "Print every setting as it would be, as JSON, and end");
  server::add_flags(*c, o->flags, [](const std::string& key) { return !kServerOnly.count(key); });
  c->callback([o, &command] { command = [o] { return run(o->flags, o->print_config); }; });
}

}  // namespace danqing::app
