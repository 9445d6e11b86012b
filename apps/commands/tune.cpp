// danqing tune: tries the cards and keeps what was found.
#include "tune/tune.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>

#include "base/json.h"
#include "base/log.h"
#include "base/try.h"
#include "base/units.h"
#include "commands.h"

namespace danqing::app {
namespace {

struct Options {
  std::string device;
  bool again = false, json = false;
};

Json tuning_json(const tune::Tuning& t) {
  Json trials = Json::array();
  for (const tune::Trial& r : t.trials)
    trials.push_back({{"stage", std::string(tune::name(r.stage))},
                      {"attention", r.flash ? "card" : "written out"},
                      {"deviation", std::isfinite(r.deviation) ? Json(r.deviation) : Json()},
                      {"seconds_per_layer", r.seconds}});
  return {{"device", t.device},
          {"card", t.card},
          {"key", t.key},
          {"measured_now", t.measured},
          {"attention", t.flash_attention ? "card" : "written out"},
          {"wrong", t.wrong().empty() ? Json() : Json(t.wrong())},
          {"trials", trials}};
}

std::string tuning_text(const tune::Tuning& t) {
  std::string s = fmt::format("{} ({}){}\n", t.device, t.card, t.measured ? "" : ", as measured before");
  for (const tune::Trial& r : t.trials)
    s += fmt::format("  {:9} {:>10} a layer, off by {:.1e}{}\n", tune::name(r.stage), format_seconds(r.seconds),
                     r.deviation, r.flash ? ", attention by the card's own kernel" : "");
  if (!t.wrong().empty()) return s + fmt::format("  not used: {}\n", t.wrong());
  return s + fmt::format("  attention: {}\n", t.flash_attention ? "the card's own kernel" : "scores written out");
}

Result<int> run(const Options& o) {
  tune::Options options;
  options.again = o.again;
  if (!o.json) options.say = [](const std::string& text) { std::fprintf(stderr, "%s\n", text.c_str()); };
  std::vector<tune::Tuning> list;
  if (o.device.empty()) {
    list = tune::tune_all(options);
  } else if (o.device == "cpu") {
    return usage_error("[--device] the CPU needs no trial; it is what cards are held to");
  } else {
    DQ_TRY(tune::Tuning t, tune::tuning_of(o.device, options));
    list.push_back(std::move(t));
  }
  std::vector<std::string> said;
  const std::string best = tune::choose(list, said);
  std::string out;
  if (o.json) {
    Json devices = Json::array();
    for (const tune::Tuning& t : list) devices.push_back(tuning_json(t));
    out = dump_json({{"devices", devices}, {"auto", best}, {"notes", said}}, 2) + "\n";
  } else {
    if (list.empty()) out = "no card to try (danqing generate --device list says why)\n";
    for (const tune::Tuning& t : list) out += tuning_text(t);
    for (const std::string& s : said) out += s + "\n";
    if (o.device.empty()) out += fmt::format("auto takes {}\n", best);
  }
  std::fputs(out.c_str(), stdout);
  for (const tune::Tuning& t : list)
    if (!o.device.empty() && !t.wrong().empty()) return 1;
  return 0;
}

}  // namespace

void add_tune(CLI::App& app, Command& command) {
  auto o = std::make_shared<Options>();
  CLI::App* c = app.add_subcommand("tune", "Try the cards: are they right, and which backend is the fastest");
  c->footer(
      "Each card computes products, attention and convolutions of the true networks' widths, held to the CPU's "
      "results. The\n"
      "result is kept for card, driver and version in $XDG_CACHE_HOME/danqing/tuning.json; other commands do this by\n"
      "themselves before a card's first use (--tune off: not). Exit code 1: the card named by --device is wrong.");
  c->add_option("--device", o->device, "Only this card (default: all)");
  c->add_flag("--again", o->again, "Measure even where a result is kept");
  c->add_flag("--json", o->json, "Print JSON");
  c->callback([o, &command] { command = [o] { return run(*o); }; });
}

}  // namespace danqing::app
