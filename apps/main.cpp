// danqing: one binary, subcommands. Parses, runs the chosen command, turns an Error into one line and an exit code.
#include <cstdio>
#include <exception>
#include <optional>

#include "base/log.h"
#include "commands.h"
#include "common/streams.h"
#include "common/version_text.h"
#include "doctor/explain.h"
#include "server/queue/open_queue.h"

namespace {

int exit_code(danqing::ErrorCode code) { return static_cast<int>(code); }

int report(const danqing::Error& e) {
  std::string line = e.message;
  for (char& c : line)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      c = ' ';  // one line, and no escape codes from a prompt or file
  std::fprintf(stderr, "danqing: %s\n", line.c_str());
  const auto language = danqing::doctor::parse_language("");
  const std::string cause = danqing::doctor::likely_cause(e, language ? *language : danqing::doctor::Language::english);
  if (!cause.empty()) std::fprintf(stderr, "danqing: %s\n", cause.c_str());
  return exit_code(e.code);
}

/// The end of every run that went well. A full disk or a closed pipe shows only when the buffer is written.
int finish(int code) {
  if (!danqing::app::flush_output())
    return report({danqing::ErrorCode::failed, "[output] standard output cannot be written"});
  return code;
}

/// An option with an empty value comes from a variable that was not set; taking it for "default" would hide that.
/// Prompts may be empty.
std::optional<danqing::Error> empty_value(const CLI::App& app) {
  for (const CLI::App* command : app.get_subcommands()) {
    if (auto inner = empty_value(*command)) return inner;
    for (const CLI::Option* option : command->get_options()) {
      const std::string name = option->get_name();
      if (name == "prompt" || name == "--negative") continue;
      for (const std::string& value : option->results())
        if (value.empty())
          return danqing::Error{danqing::ErrorCode::usage, "[usage] " + name + ": expected a value, got an empty word"};
    }
  }
  return {};
}

/// CLI11 takes an empty word for the number 0.
void refuse_empty_numbers(CLI::App& app) {
  CLI::Validator number = CLI::Number;
  number.description("");
  for (CLI::App* command : app.get_subcommands({})) {
    refuse_empty_numbers(*command);
    for (CLI::Option* option : command->get_options()) {
      const std::string type = option->get_type_name();
      if (type.compare(0, 3, "INT") == 0 || type.compare(0, 5, "FLOAT") == 0) option->check(number);
    }
  }
}

constexpr const char* kFooter =
    "Examples:\n"
    "  danqing generate \"a red apple\"                      the built-in small model, one picture\n"
    "  danqing generate \"夜空下的一只猫\" -o cat.png --seed 42\n"
    "  danqing generate \"a lighthouse\" -m ERNIE-Image --size 1264x848 --steps 50 --guidance 4\n"
    "  danqing generate \"a lighthouse\" --batch 4 --seed 7 -o 'out/{prompt}-{seed}.png'\n"
    "  danqing enhance \"a cat\"                             print the prompt that the enhancer makes of it\n"
    "  danqing inspect ERNIE-Image                         what a model directory or file holds\n"
    "  danqing pull baidu/ERNIE-Image-Turbo                fetch a model; danqing models list shows what is there\n"
    "  danqing serve                                       a web page and HTTP APIs at http://127.0.0.1:7860\n"
    "  danqing worker --queue nats://queue:4222            draws for servers that were given the same --queue\n"
    "  danqing monitor                                     temperature, load, memory and power of the cards\n"
    "  danqing doctor                                      drivers, rights, devices; what an error message means\n"
    "Exit codes: 0 ok, 1 failed, 2 wrong usage, 3 bad model or input file, 4 does not fit into memory,\n"
    "            5 device lost, 130 cancelled.  danqing COMMAND --help explains a command.";

}  // namespace

int main(int argc, char** argv) {
  using namespace danqing::app;
  prepare_streams();
  try {
    CLI::App app{"Danqing (丹青): pictures from text with ERNIE-Image, on any machine."};
    app.footer(kFooter);
    app.get_formatter()->column_width(34);
    app.require_subcommand(0, 1);
    bool show_version = false, verbose = false;
    app.add_flag("--version", show_version, "Version, ggml, devices, CPU features");
    app.add_flag("--verbose", verbose, "Log what is done, to stderr");
    Command command;
    add_generate(app, command);
    add_enhance(app, command);
    add_plan(app, command);
    add_inspect(app, command);
    add_verify(app, command);
    add_bench(app, command);
    add_serve(app, command);
    add_worker(app, command);
    add_queue(app, command);
    add_convert(app, command);
    add_monitor(app, command);
    add_doctor(app, command);
    add_tune(app, command);
    add_pull(app, command);
    add_models(app, command);
    refuse_empty_numbers(app);
    for (CLI::App* c : app.get_subcommands({})) c->fallthrough();  // --verbose after the command too
    try {
      app.parse(argc, argv);
    } catch (const CLI::ParseError& e) {
      if (e.get_exit_code() == 0) return finish(app.exit(e));  // --help
      return report({danqing::ErrorCode::usage, std::string("[usage] ") + e.what() + " (see danqing --help)"});
    }
    if (const auto empty = empty_value(app)) return report(*empty);
    if (verbose) danqing::log::set_level(danqing::log::Level::debug);
    if (show_version) {
      std::fputs((version_text() + "queue: sqlite, NATS client: " + danqing::server::nats_text() + "\n").c_str(),
                 stdout);
      return finish(0);
    }
    if (!command) {
      std::fputs(app.help().c_str(), stdout);
      return finish(0);
    }
    const auto result = command();
    return result ? finish(*result) : report(result.error());
  } catch (const std::exception& e) {
    return report({danqing::ErrorCode::failed, std::string("[internal] ") + e.what()});
  }
}
