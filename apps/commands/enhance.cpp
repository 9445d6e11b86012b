// danqing enhance: the prompt enhancer alone.
#include <fmt/format.h>

#include <cstdio>

#include "base/json.h"
#include "base/try.h"
#include "base/units.h"
#include "commands.h"
#include "common/interrupt.h"
#include "common/model_options.h"
#include "common/parse.h"
#include "common/progress.h"
#include "pipeline/prompt_enhancer.h"

namespace danqing::app {
namespace {

struct Options {
  ModelOptions model;
  std::string prompt, size, seed = "0";
  EnhanceOptions enhance;
  bool json = false, quiet = false;
};

Result<int> run(const Options& o) {
  EnhanceOptions e = o.enhance;
  if (!o.size.empty()) {
    DQ_TRY(std::tie(e.width, e.height), parse_size(o.size));
  }
  DQ_TRY(e.seed, parse_seed(o.seed));
  DQ_CHECK(check_enhance_options(e));
  catch_interrupts();
  DQ_TRY(const std::unique_ptr<Engine> engine, open_engine(o.model));
  ProgressView view(ProgressView::mode_for(o.quiet));
  // The text itself streams to stdout, so only loading shows on stderr. Leading whitespace waits until a word comes.
  bool started = false;
  RunControl control;
  // Without a reader the text has no purpose: stop.
  control.cancelled = [] { return interrupted() || std::ferror(stdout); };
  control.on_progress = [&](const ProgressEvent& event) {
    if (event.stage != Stage::enhance) return view.show(event);
    if (o.json) return;
    std::string text = event.text;
    if (!started) text.erase(0, std::min(text.find_first_not_of(" \t\r\n"), text.size()));
    if (text.empty()) return;
    if (!started) view.clear();
    started = true;
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  };
  auto result = engine->enhance(o.prompt, e, control);
  if (started) std::fputc('\n', stdout);
  if (std::ferror(stdout)) return 0;  // main reports it
  if (!result && result.error().code == ErrorCode::cancelled) return fail(ErrorCode::cancelled, "[enhance] cancelled");
  if (!result) return std::move(result).error();
  if (o.json) {
    Json j{{"prompt", o.prompt},
           {"revised_prompt", result->text},
           {"prompt_tokens", result->prompt_tokens},
           {"new_tokens", result->new_tokens},
           {"reached_limit", result->reached_limit},
           {"seconds", result->seconds}};
    std::fputs((dump_json(j, 2) + "\n").c_str(), stdout);
  } else if (result->reached_limit) {
    view.say(fmt::format("note: stopped at the limit of {} tokens; --max-tokens raises it", e.max_new_tokens));
  } else if (result->text.empty()) {
    view.say("note: the enhancer wrote nothing for this prompt and seed");
  }
  return 0;
}

}  // namespace

void add_enhance(CLI::App& app, Command& command) {
  auto o = std::make_shared<Options>();
  CLI::App* c = app.add_subcommand("enhance", "Print the prompt that the model's prompt enhancer makes of yours");
  c->footer(
      "Examples:\n"
      "  danqing enhance \"a cat\"                          streams the text\n"
      "  danqing enhance \"一只猫\" --temperature 0           the same text every time\n"
      "  danqing enhance \"a cat\" --size 1264x848 --seed 7 --json");
  c->add_option("prompt", o->prompt, "The prompt")->required();
  c->add_option("--size", o->size, "Picture size told to the enhancer, WIDTHxHEIGHT (default: the model's)");
  c->add_option("--temperature", o->enhance.temperature, "Randomness; 0 takes the most likely token always")
      ->capture_default_str();
  c->add_option("--top-p", o->enhance.top_p, "Keep the likeliest tokens up to this total probability")
      ->capture_default_str();
  c->add_option("--top-k", o->enhance.top_k, "Keep this many likeliest tokens; 0 = all")->capture_default_str();
  c->add_option("--seed", o->seed, "Seed of the draw")->capture_default_str();
  c->add_option("--max-tokens", o->enhance.max_new_tokens, "At most this many new tokens")->capture_default_str();
  c->add_flag("--json", o->json, "Print the result as JSON instead of streaming");
  c->add_flag("-q,--quiet", o->quiet, "No progress");
  add_model_options(*c, o->model);
  c->callback([o, &command] { command = [o] { return run(*o); }; });
}

}  // namespace danqing::app
