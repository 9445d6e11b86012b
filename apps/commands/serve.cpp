// danqing serve: pictures for many people over HTTP.
#include "server/serve.h"

#include <cstdio>

#include "base/try.h"
#include "commands.h"
#include "server/auth/keys.h"

namespace danqing::app {
namespace {

struct Options {
  server::FlagValues flags;
  bool print_config = false, admin = false;
  std::string new_key;
};

Result<int> run(const Options& o) {
  if (!o.new_key.empty()) {
    DQ_TRY(const server::ApiKeys::NewKey key, server::ApiKeys::make(o.new_key, o.admin));
    std::fprintf(stderr, "the key, shown only now: %s\n", key.key.c_str());
    std::printf("%s\n", key.line.c_str());
    return 0;
  }
  DQ_TRY(const server::Config config, server::load_config(o.flags));
  if (o.print_config) {
    std::printf("%s\n", dump_json(server::to_json(config), 2).c_str());
    return 0;
  }
  return server::serve(config);
}

constexpr const char* kExamples =
    "Settings come from the file, then DANQING_... variables (DANQING_MAX_STEPS=50), then flags; the last one counts.\n"
    "Examples:\n"
    "  danqing serve                                          the built-in model and the page at "
    "http://127.0.0.1:7860\n"
    "  danqing serve -m ERNIE-Image -m turbo=ERNIE-Image-Turbo --data /var/lib/danqing\n"
    "  danqing serve --new-key anna >> keys; danqing serve --host 0.0.0.0 --api-key-file keys\n"
    "  danqing serve --print-config";

}  // namespace

void add_serve(CLI::App& app, Command& command) {
  auto o = std::make_shared<Options>();
  CLI::App* c =
      app.add_subcommand("serve", "Serve pictures over HTTP: a web page, and the OpenAI, A1111 and native APIs");
  c->footer(kExamples);
  c->add_flag("--print-config", o->print_config, "Print every setting as it would be, as JSON, and end");
  c->add_option("--new-key", o->new_key,
                "Make an API key for NAME: the key on stderr, the line for the key file on stdout");
  c->add_flag("--admin", o->admin, "With --new-key: may see and cancel everybody's jobs");
  server::add_flags(*c, o->flags);
  c->callback([o, &command] { command = [o] { return run(*o); }; });
}

}  // namespace danqing::app
