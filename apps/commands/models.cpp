// danqing models: what danqing pull has put into the folder of models.
#include "fetch/models.h"

#include <unistd.h>

#include <cstdio>
#include <iostream>

#include "base/json.h"
#include "base/text.h"
#include "base/try.h"
#include "base/units.h"
#include "checkpoint/kinds.h"
#include "commands.h"
#include "common/interrupt.h"
#include "pull/view.h"

namespace danqing::app {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string dir;
  std::vector<std::string> names;
  bool json = false, quiet = false, yes = false;
};

/// "ErnieImagePipeline", or what the weights are; "?" for what is not known or not whole.
std::string kind_of(const fetch::InstalledModel& m) {
  std::error_code ec;
  if (fs::exists(m.path / "model_index.json", ec)) {
    const auto json = read_json(m.path / "model_index.json");
    const std::string kind = json ? class_of_config(*json) : "";
    return kind.empty() ? "?" : one_line(kind, 60);
  }
  const auto source = m.complete ? TensorSource::open(m.path) : Error{};
  const auto kind = source ? recognise(**source) : std::nullopt;
  return kind ? kind->description : "?";
}

std::string origin(const fetch::InstalledModel& m) {
  if (!m.manifest) return "by hand";
  const fetch::Manifest& f = *m.manifest;
  if (f.source == "url") return f.urls.empty() ? "url" : one_line(f.urls[0], 120);
  std::string out = f.source + " " + f.repository + "@" + f.revision;
  if (!f.commit.empty()) out += " (" + f.commit.substr(0, 8) + ")";
  return one_line(out, 200);
}

Result<int> run_list(const Options& o) {
  DQ_TRY(const fs::path folder, fetch::models_folder(o.dir));
  const auto models = fetch::list_models(folder);
  Json out = Json::array();
  size_t width = 5;
  for (const auto& m : models) width = std::max(width, m.name.size());
  for (const auto& m : models) {
    const std::string kind = kind_of(m), quant = m.manifest ? m.manifest->quant : "";
    if (o.json) {
      Json j = {{"name", m.name},         {"path", m.path.string()}, {"kind", kind},      {"bytes", m.bytes},
                {"complete", m.complete}, {"missing", m.missing},    {"from", origin(m)}, {"quant", quant}};
      if (m.manifest) j["commit"] = m.manifest->commit;
      out.push_back(std::move(j));
      continue;
    }
    const std::string state = m.complete          ? "complete"
                              : m.missing.empty() ? "unfinished"
                                                  : fmt::format("{} files missing", m.missing.size());
    fmt::print("{:<{}}  {:>10}  {:<16} {}{}  {}\n", one_line(m.name, 200), width, format_bytes(m.bytes), state, kind,
               quant.empty() ? "" : " " + quant, origin(m));
  }
  if (o.json)
    std::fputs((dump_json(out, 2) + "\n").c_str(), stdout);
  else if (models.empty())
    fmt::print("no models in {}; danqing pull owner/name fetches one\n", folder.string());
  return 0;
}

Result<bool> agreed(const Options& o, const fetch::InstalledModel& m) {
  if (o.yes) return true;
  if (!::isatty(STDIN_FILENO))
    return usage_error("[models] rm asks before it removes; give --yes where nobody can answer");
  fmt::print(stderr, "remove {} ({}, {})? [y/N] ", one_line(m.name), format_bytes(m.bytes), m.path.string());
  std::string answer;
  std::getline(std::cin, answer);
  return answer == "y" || answer == "Y" || answer == "yes";
}

Result<int> run_remove(const Options& o) {
  DQ_TRY(const fs::path folder, fetch::models_folder(o.dir));
  std::vector<fetch::InstalledModel> found;
  for (const std::string& name : o.names) {  // all names are looked at before anything is gone
    DQ_TRY(fetch::InstalledModel m, fetch::find_model(folder, name));
    found.push_back(std::move(m));
  }
  Json removed = Json::array();
  for (const fetch::InstalledModel& m : found) {
    DQ_TRY(const bool yes, agreed(o, m));
    if (!yes) continue;
    DQ_CHECK(fetch::remove_model(folder, m.name));
    removed.push_back({{"name", m.name}, {"bytes", m.bytes}});
    if (!o.json && !o.quiet) fmt::print("removed {}, {} are free again\n", m.name, format_bytes(m.bytes));
  }
  if (o.json) std::fputs((dump_json(removed, 2) + "\n").c_str(), stdout);
  return 0;
}

Result<int> run_verify(const Options& o) {
  DQ_TRY(const fs::path folder, fetch::models_folder(o.dir));
  std::vector<fetch::InstalledModel> models;
  for (const std::string& name : o.names) {
    DQ_TRY(fetch::InstalledModel m, fetch::find_model(folder, name));
    models.push_back(std::move(m));
  }
  if (o.names.empty())
    for (fetch::InstalledModel& m : fetch::list_models(folder))
      if (m.manifest) models.push_back(std::move(m));
  catch_interrupts();
  TransferView view(ProgressView::mode_for(o.quiet), "verify");
  Json out = Json::array();
  std::string text;
  bool good = true;
  for (const fetch::InstalledModel& m : models) {
    uint64_t total = 0, done = 0;
    if (m.manifest)
      for (const auto& f : m.manifest->files) total += f.size;
    DQ_TRY(const auto files, fetch::verify_model(m, [&](uint64_t n) {
             done += n;
             view.show(done, total, m.name, done);
             return !interrupted();
           }));
    Json damaged = Json::array();
    for (const auto& f : files) {
      if (f.trouble.empty()) continue;
      damaged.push_back({{"path", f.path}, {"trouble", f.trouble}});
      text += fmt::format("{}: {}: {}\n", m.name, one_line(f.path, 1024), f.trouble);
    }
    good &= damaged.empty();
    if (damaged.empty())
      text += fmt::format("{}: {} files as they were pulled\n", m.name, files.size());
    else
      text += fmt::format("{}: danqing pull --verify fetches {} again\n", m.name, damaged.size() == 1 ? "it" : "them");
    out.push_back({{"name", m.name}, {"files", files.size()}, {"damaged", std::move(damaged)}});
  }
  view.clear();
  if (o.json || !o.quiet) std::fputs(o.json ? (dump_json(out, 2) + "\n").c_str() : text.c_str(), stdout);
  return good ? 0 : static_cast<int>(ErrorCode::bad_input);
}

}  // namespace

void add_models(CLI::App& app, Command& command) {
  CLI::App* c = app.add_subcommand("models", "The models that were pulled: list, rm, verify");
  c->footer("Exit codes: 0; verify: 3 when a file is missing or damaged.");
  c->require_subcommand(0, 1);
  const auto add = [&](const char* name, const char* help, Result<int> (*run)(const Options&)) {
    auto o = std::make_shared<Options>();
    CLI::App* sub = c->add_subcommand(name, help);
    sub->add_option("--dir", o->dir, "Folder of models (default: $DANQING_MODELS, else ~/.local/share/danqing/models)");
    sub->add_flag("--json", o->json, "Print as JSON");
    sub->callback([o, run, &command] { command = [o, run] { return run(*o); }; });
    return std::pair(sub, o);
  };
  add("list", "Name, size, whole or not, kind, where from", run_list);
  c->callback([c, &command] {
    if (c->get_subcommands().empty()) command = [] { return run_list({}); };
  });
  const auto [rm, rm_options] = add("rm", "Remove models", run_remove);
  rm->add_option("names", rm_options->names, "As `danqing models list` shows them")->required();
  rm->add_flag("--yes", rm_options->yes, "Do not ask");
  rm->add_flag("--quiet", rm_options->quiet, "No report");
  const auto [verify, verify_options] = add("verify", "Hash every file and compare with what was pulled", run_verify);
  verify->add_option("names", verify_options->names, "Models (default: all)");
  verify->add_flag("--quiet", verify_options->quiet, "No progress and no report");
}

}  // namespace danqing::app
