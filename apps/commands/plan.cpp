// danqing plan: how a job would use a device's memory, from configs and headers alone.
#include <fmt/format.h>

#include <cstdio>

#include "base/log.h"
#include "base/try.h"
#include "base/units.h"
#include "bench/outline.h"
#include "commands.h"
#include "common/model_options.h"
#include "common/parse.h"
#include "common/picture_file.h"
#include "common/plan_text.h"

namespace danqing::app {
namespace {

constexpr int kMostTogether = 64;  // pictures tried with --batch auto

struct Options {
  ModelOptions model;
  std::string config, init_image, positional, size, batch = "1", enhancer = "auto", prompt;
  int text_tokens = 0;
  std::optional<int> steps;
  std::optional<float> guidance;
  double strength = GenerateRequest().strength;
  bool json = false;
};

Result<int> run(const Options& o) {
  log::set_level(log::Level::error);
  ModelOptions model = o.model;
  if (!o.positional.empty()) {
    if (!model.paths.model.empty()) return usage_error("[plan] give the model once: as an argument or by --model");
    model.paths.model = o.positional;
  }
  std::unique_ptr<OutlineModel> outline;
  if (!o.config.empty()) {
    if (!model.paths.model.empty()) return usage_error("[--config] give a model or --config, not both");
    DQ_TRY(outline, OutlineModel::create(o.config));
    model.paths.model = outline->path();
  }
  GenerateRequest r;
  r.prompts = {o.prompt};
  if (!o.size.empty()) {
    DQ_TRY(std::tie(r.width, r.height), parse_size(o.size));
  }
  DQ_TRY(const int batch, parse_count_or_auto(o.batch, "--batch", "pictures"));
  DQ_TRY(r.enhancer, parse_enhancer_mode(o.enhancer));
  r.images_per_prompt = r.batch_size = batch ? batch : kMostTogether;
  r.num_inference_steps = o.steps;
  r.guidance_scale = o.guidance;
  if (!o.init_image.empty()) {
    DQ_TRY(r.init_image, read_picture(o.init_image, "--init-image"));
  }
  r.strength = o.strength;
  DQ_TRY(const std::unique_ptr<Engine> engine, open_engine(model));
  DQ_TRY(const MemoryPlan plan, engine->plan(r, o.text_tokens));
  const std::string text = o.json ? dump_json(plan_json(plan), 2) + "\n" : plan_text(plan);
  std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace

void add_plan(CLI::App& app, Command& command) {
  auto o = std::make_shared<Options>();
  CLI::App* c = app.add_subcommand("plan", "Say how a job would use a device's memory; reads no weights");
  c->footer(
      "Examples:\n"
      "  danqing plan ERNIE-Image --device-memory 32GiB --size 1024x1024 --batch 4\n"
      "  danqing plan Z-Image-Turbo --device-memory 8GiB --json\n"
      "  danqing plan --config z-image-6b --device-memory 16GiB      without any files\n"
      "Exit code 4: nothing fits; the message says what would.");
  c->add_option("model_path", o->positional, "Model: a diffusers directory or one file");
  c->add_option("--config", o->config,
                "In place of a model: ernie-8b, z-image-6b, or a directory of config.json files, bf16 weights assumed");
  c->add_option("--size", o->size, "Picture size WIDTHxHEIGHT (default: the model's)");
  c->add_option("--batch", o->batch, "Pictures denoised together, or auto: as many as fit")->capture_default_str();
  c->add_option("--prompt", o->prompt, "Count this prompt's tokens");
  c->add_option("--text-tokens", o->text_tokens, "Assume texts of this many tokens (default: 256, or --prompt's)")
      ->check(CLI::Range(1, 1 << 20));
  c->add_option("--steps", o->steps, "Denoising steps (default: the model's)");
  c->add_option("--guidance", o->guidance, "Guidance scale (default: the model's)");
  c->add_option("--init-image", o->init_image, "Plan for a run that starts from this picture");
  c->add_option("--strength", o->strength, "How much of --init-image is drawn anew")->capture_default_str();
  c->add_option("--prompt-enhancer", o->enhancer, "on, off, or auto (the model's default)")->capture_default_str();
  c->add_flag("--json", o->json, "Print JSON");
  add_model_options(*c, o->model);
  c->callback([o, &command] {
    command = [o] {
      if (o->prompt.empty() && o->text_tokens == 0) o->text_tokens = 256;
      return run(*o);
    };
  });
}

}  // namespace danqing::app
