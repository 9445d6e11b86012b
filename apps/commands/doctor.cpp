// danqing doctor: is this machine ready, and if not, what to do; what a pasted error means.
#include <algorithm>
#include <cstdio>

#include "base/file.h"
#include "base/try.h"
#include "commands.h"
#include "danqing/engine.h"
#include "doctor/report.h"

namespace danqing::app {
namespace {

struct Options {
  bool json = false, list = false;
  std::string language, explain, model, root;
};

constexpr size_t kMostLog = size_t{64} << 20;

/// "-" is standard input, the name of a file its content, anything else the text itself.
Result<std::string> log_text(const std::string& word) {
  std::error_code ec;
  if (word == "-") return read_text("/dev/stdin", kMostLog, true);
  if (std::filesystem::is_regular_file(word, ec)) return read_text(word, kMostLog);
  return word;
}

Result<int> explain(const Options& o, doctor::Language language) {
  DQ_TRY(const std::string text, log_text(o.explain));
  const auto found = doctor::explain(text);
  const std::string out = o.json ? dump_json(doctor::to_json(found), 2) + "\n" : doctor::report_text(found, language);
  std::fputs(out.c_str(), stdout);
  return found.empty() ? 1 : 0;
}

void list_errors(const Options& o, doctor::Language language) {
  Json all = Json::array();
  for (const doctor::KnownError& e : doctor::known_errors()) {
    if (!o.json) std::printf("%-26s %s\n", e.id.c_str(), e.title.in(language).c_str());
    all.push_back({{"id", e.id}, {"title", {{"en", e.title.en}, {"zh", e.title.zh}}}, {"source", e.source}});
  }
  if (o.json) std::printf("%s\n", dump_json(all, 2).c_str());
}

Result<int> run(const Options& o) {
  DQ_TRY(const doctor::Language language, doctor::parse_language(o.language));
  if (o.list) return list_errors(o, language), 0;
  if (!o.explain.empty()) return explain(o, language);
  std::error_code ec;
  if (!o.root.empty() && !std::filesystem::is_directory(o.root, ec))
    return bad_input("[doctor] expected a directory with sys/, proc/, dev/ in --root, got '{}'", o.root);
  doctor::Machine machine = doctor::look_around(o.root.empty() ? "/" : o.root);
  machine.model = o.model;
  if (!o.model.empty() && o.root.empty()) {
    EngineOptions options;
    options.paths.model = o.model;
    // A model that does not open is the check `model`'s to tell.
    if (const auto engine = Engine::open(options)) machine.plan = (*engine)->plan(GenerateRequest{.prompts = {""}});
  }
  const std::vector<doctor::Check> checks = doctor::check_all(machine);
  const std::string out = o.json ? dump_json(doctor::to_json(checks), 2) + "\n" : doctor::report_text(checks, language);
  std::fputs(out.c_str(), stdout);
  const bool failed = std::any_of(checks.begin(), checks.end(),
                                  [](const doctor::Check& c) { return c.status == doctor::Status::failed; });
  return failed ? 1 : 0;
}

}  // namespace

void add_doctor(CLI::App& app, Command& command) {
  auto o = std::make_shared<Options>();
  CLI::App* c = app.add_subcommand("doctor", "Check drivers, rights, devices and memory; explain an error message");
  c->footer(
      "Exit code: 0 all well or warnings only, 1 a check failed, or --explain knows nothing of it.\n"
      "Examples:\n"
      "  danqing doctor                          every check of this machine\n"
      "  danqing doctor --model ERNIE-Image      also whether the model is whole and has room\n"
      "  dmesg | danqing doctor --explain -      what the errors in a log mean\n"
      "  danqing doctor --explain 'hipErrorNoBinaryForGpu' --lang zh");
  c->add_option("--explain", o->explain,
                "What TEXT means: an error message, a file with a log, or '-' for standard input");
  c->add_flag("--list-errors", o->list, "List the errors that --explain knows");
  c->add_option("-m,--model", o->model, "Model directory or file to check too");
  c->add_option("--lang", o->language, "en or zh (default: by LC_ALL, LANG)");
  c->add_flag("--json", o->json, "Print JSON, in both languages");
  c->add_option("--root", o->root, "Check the machine recorded below DIR (DIR/sys, DIR/proc, DIR/dev, DIR/etc, ...)");
  c->callback([o, &command] { command = [o] { return run(*o); }; });
}

}  // namespace danqing::app
