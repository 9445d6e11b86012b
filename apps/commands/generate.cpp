// danqing generate: prompts to picture files.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <set>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/try.h"
#include "base/units.h"
#include "commands.h"
#include "common/interrupt.h"
#include "common/model_options.h"
#include "common/output_name.h"
#include "common/parse.h"
#include "common/picture_file.h"
#include "common/plan_text.h"
#include "common/progress.h"
#include "common/tensor_dump.h"
#include "device/pci.h"
#include "monitor/sampler.h"
#include "pipeline/settings.h"

namespace danqing::app {
namespace {

struct Options {
  ModelOptions model;
  std::vector<std::string> prompts, negative;
  std::string prompt_file, output = "{prompt}-{seed}.png", size, seed, enhancer = "auto", noise = "cpu", enhancer_seed;
  std::string sampler = "euler", dump_directory, init_image;
  std::optional<int> width, height;
  int batch = 1, batch_size = 0, quality = 95;
  std::optional<int> steps;
  std::optional<float> guidance, shift, cfg_normalization, cfg_truncation;
  std::optional<double> strength;
  bool single_generator = false, overwrite = false, json = false, quiet = false;
  EnhanceOptions enhance;
};

Result<GenerateRequest> make_request(const Options& o) {
  GenerateRequest r;
  if (std::count(o.prompts.begin(), o.prompts.end(), "-") > 1)
    return usage_error("[prompt] expected '-' once: standard input can be read only once");
  for (const std::string& p : o.prompts) {
    std::vector<std::string> some{p};
    if (p == "-") {
      DQ_TRY(some, read_prompts("-"));
    }
    r.prompts.insert(r.prompts.end(), some.begin(), some.end());
  }
  if (!o.prompt_file.empty()) {
    DQ_TRY(const std::vector<std::string> more, read_prompts(o.prompt_file));
    r.prompts.insert(r.prompts.end(), more.begin(), more.end());
  }
  if (r.prompts.empty() && !::isatty(STDIN_FILENO)) {
    DQ_TRY(r.prompts, read_prompts("-"));
  }
  if (r.prompts.empty()) return usage_error("[prompt] expected a prompt, --prompt-file or prompts on standard input");
  r.negative_prompts = o.negative;
  for (const auto& [option, side] : {std::pair{"--width", o.width}, std::pair{"--height", o.height}})
    if (side && *side < 1) return usage_error("[{}] expected pixels, a number above 0, got {}", option, *side);
  r.width = o.width.value_or(0);
  r.height = o.height.value_or(0);
  if (!o.size.empty()) {
    if (o.width || o.height) return usage_error("[size] give --size, or --width and --height, not both");
    DQ_TRY(std::tie(r.width, r.height), parse_size(o.size));
  }
  r.num_inference_steps = o.steps;
  r.guidance_scale = o.guidance;
  r.shift = o.shift;
  r.cfg_normalization = o.cfg_normalization;
  r.cfg_truncation = o.cfg_truncation;
  r.sampler = o.sampler;
  r.images_per_prompt = o.batch;
  r.batch_size = o.batch_size;
  r.one_stream = o.single_generator;
  DQ_TRY(r.seeds, parse_seeds(o.seed));
  DQ_TRY(r.enhancer, parse_enhancer_mode(o.enhancer));
  r.enhance = o.enhance;
  if (!o.enhancer_seed.empty()) {
    DQ_TRY(r.enhance.seed, parse_seed(o.enhancer_seed, "--enhancer-seed"));
  }
  if (o.noise != "cpu" && o.noise != "cuda") return usage_error("[--noise] expected cpu or cuda, got '{}'", o.noise);
  r.cuda_noise = o.noise == "cuda";
  if (o.strength && o.init_image.empty()) return usage_error("[--strength] has a meaning only with --init-image");
  if (!o.init_image.empty()) {
    DQ_TRY(r.init_image, read_picture(o.init_image, "--init-image"));
  }
  r.strength = o.strength.value_or(r.strength);
  return r;
}

class Writer {
 public:
  Writer(const Options& o, std::string pattern, ProgressView& view)
      : o_(o), pattern_(std::move(pattern)), view_(view) {}

  Result<void> write(const GeneratedImage& g) {
    DQ_TRY(const std::string name, expand_output_name(pattern_, {g.seed, g.index, g.prompt}));
    const std::filesystem::path wanted(name);
    DQ_TRY(const ImageFormat format, image_format_of(wanted));
    DQ_TRY(const std::string bytes, encode_image(g.image, format, g.metadata, {o_.quality}));
    std::error_code ec;
    if (!wanted.parent_path().empty()) std::filesystem::create_directories(wanted.parent_path(), ec);
    const bool replace = o_.overwrite && !written_.count(wanted);
    std::filesystem::path path = replace ? wanted : free_name(wanted);
    if (path != wanted) view_.say(fmt::format("note: {} exists, writing {}", wanted.string(), path.string()));
    for (int attempt = 0;; ++attempt) {
      auto done = write_file(path, bytes, replace);
      if (done) break;
      // Another process took the name meanwhile: try the next free one.
      if (replace || attempt > 100 || !std::filesystem::exists(path, ec)) return done;
      path = free_name(wanted);
    }
    written_.insert(path);
    paths_[g.index] = path;
    view_.clear();
    // Where nobody reads standard output any more the pictures are still wanted; main reports it at the end.
    if (!o_.json) std::fputs((path.string() + "\n").c_str(), stdout);
    std::fflush(stdout);
    return {};
  }
  const std::map<int, std::filesystem::path>& paths() const { return paths_; }

 private:
  const Options& o_;
  std::string pattern_;
  ProgressView& view_;
  std::set<std::filesystem::path> written_;
  std::map<int, std::filesystem::path> paths_;
};

Json image_json(const GeneratedImage& g, const std::filesystem::path& path) {
  Json j{{"path", path.string()}, {"index", g.index},       {"seed", g.seed},
         {"prompt", g.prompt},    {"width", g.image.width}, {"height", g.image.height}};
  if (g.revised_prompt != g.prompt) j["revised_prompt"] = g.revised_prompt;
  if (!g.negative_prompt.empty()) j["negative_prompt"] = g.negative_prompt;
  return j;
}

Json timing_json(const GenerateResult& r) {
  return {{"total", r.seconds_total},      {"load", r.seconds_load},       {"enhance", r.seconds_enhance},
          {"text", r.seconds_text},        {"denoise", r.seconds_denoise}, {"decode", r.seconds_decode},
          {"per_step", r.seconds_per_step}};
}

void announce(const ModelInfo& info, const GenerateRequest& r, ProgressView& view) {
  const ModelDefaults& d = info.defaults;
  std::string from;
  if (!r.num_inference_steps || !r.guidance_scale || !r.width || !r.shift)
    from = fmt::format(" (defaults: {})", d.source);
  const bool from_image = r.init_image.width > 0;
  const auto side = [&](int asked, int own, int usual) {
    return asked ? asked : from_image ? in_multiples(info, own) : usual;
  };
  const std::string size =
      fmt::format("{}x{}{}", side(r.width, r.init_image.width, d.width), side(r.height, r.init_image.height, d.height),
                  from_image && !r.width && !r.height ? " as the given picture" : "");
  view.say(fmt::format("{}: {}, {} steps{}, guidance {:g}, shift {:g}{}", info.name, size,
                       r.num_inference_steps.value_or(d.num_inference_steps),
                       from_image ? fmt::format(" at strength {:g}", r.strength) : "",
                       r.guidance_scale.value_or(d.guidance_scale), r.shift.value_or(d.shift), from));
}

std::string memory_line(const GenerateResult& r) {
  std::string line = fmt::format("memory: {}", r.plan.mode);
  for (const ComponentPlan& c : r.plan.components)
    if (c.placement == Placement::stream) line += fmt::format(", {}: {}", c.role, placement_text(c));
  if (r.plan.vae_tile) line += fmt::format(", VAE tiles of {} latents", r.plan.vae_tile);
  return line + fmt::format("; peak {} of {} planned", format_bytes(r.device_peak), format_bytes(r.plan.device_peak));
}

Result<int> run(const Options& o) {
  if (o.quiet) log::set_level(log::Level::error);
  DQ_TRY(const GenerateRequest request, make_request(o));
  const size_t images = request.prompts.size() * static_cast<size_t>(std::max(1, o.batch));
  const std::string pattern = pattern_for(o.output, images);
  DQ_CHECK(check_output_pattern(pattern));
  catch_interrupts();
  DQ_TRY(const std::unique_ptr<Engine> engine, open_engine(o.model));
  DQ_CHECK(engine->check(request));
  DQ_CHECK(make_output_directory(pattern));
  std::unique_ptr<TensorDump> tensors;
  if (!o.dump_directory.empty()) {
    DQ_TRY(tensors, TensorDump::open(o.dump_directory));
  }
  ProgressView view(ProgressView::mode_for(o.quiet));
  announce(engine->info(), request, view);
  Writer writer(o, pattern, view);
  Result<void> written;
  RunControl control;
  control.cancelled = [&] {
    return interrupted() || !written;
  };  // a failed write ends the run, the rest would be lost too
  control.on_progress = [&](const ProgressEvent& e) { view.show(e); };
  std::string last_revised;
  Json finished = Json::array();
  control.on_image = [&](const GeneratedImage& g) {
    if (g.revised_prompt != g.prompt && g.revised_prompt != last_revised)
      view.say("revised prompt: " + g.revised_prompt);
    last_revised = g.revised_prompt;
    if (auto w = writer.write(g); !w && written) written = std::move(w);
    if (written) finished.push_back(image_json(g, writer.paths().at(g.index)));
  };
  if (tensors) control.dump = tensors->sink();
  monitor::EnergyMeter meter({}, o.json ? pci_address(engine->device().name) : "");
  auto result = engine->generate(request, control);
  const auto energy = meter.stop();
  view.clear();
  if (!written) return std::move(written).error();
  if (!result) {
    if (o.json && !finished.empty())  // which pictures there are must not be lost
      std::fputs(
          (dump_json({{"model", engine->info().name}, {"error", result.error().message}, {"images", finished}}, 2) +
           "\n")
              .c_str(),
          stdout);
    Error e = std::move(result).error();
    if (e.code == ErrorCode::cancelled)
      e.message = fmt::format("[generate] cancelled; {} of {} pictures written", writer.paths().size(), images);
    return e;
  }
  if (tensors) {
    DQ_TRY(const std::filesystem::path path, tensors->finish());
    view.say(fmt::format("tensors: {}", path.string()));
  }
  for (const std::string& n : result->notes) view.say("note: " + n);
  if (result->plan.mode != "whole" || result->plan.vae_tile) view.say(memory_line(*result));
  view.say(fmt::format("{} in {} ({:.3f} s/step, load {}, decode {})",
                       images == 1 ? "1 picture" : fmt::format("{} pictures", images),
                       format_seconds(result->seconds_total), result->seconds_per_step,
                       format_seconds(result->seconds_load), format_seconds(result->seconds_decode)));
  if (o.json) {
    Json j{{"model", engine->info().name},
           {"num_inference_steps", result->num_inference_steps},
           {"guidance_scale", result->guidance_scale},
           {"shift", result->shift},
           {"notes", result->notes},
           {"seconds", timing_json(*result)},
           {"memory", {{"device_peak", result->device_peak}, {"plan", plan_json(result->plan)}}},
           {"images", finished}};
    if (energy)
      j["energy"] = {{"joules", energy->joules},
                     {"joules_per_picture", energy->joules / static_cast<double>(images)},
                     {"source", energy->counted ? "counter" : "power"}};
    std::fputs((dump_json(j, 2) + "\n").c_str(), stdout);
  }
  return 0;
}

constexpr const char* kExamples =
    "Examples:\n"
    "  danqing generate \"a red apple\" \"夜空下的一只猫\" -o 'out/{index:02}-{prompt}.png'\n"
    "  danqing generate \"panda\" --seed 42 --batch 4 -o 'panda-{seed}.png'        seeds 42, 43, 44, 45\n"
    "  danqing generate --prompt-file prompts.txt --json > result.json\n"
    "  danqing generate \"a lighthouse\" -m ERNIE-Image --size 1264x848 --negative \"blurry\" --prompt-enhancer on\n"
    "  danqing generate \"a lighthouse\" --transformer dit-Q4_K.gguf --text-encoder te.safetensors --vae "
    "vae.safetensors \\\n"
    "                   --tokenizer ERNIE-Image/tokenizer                         parts from single files\n"
    "  danqing generate \"a lighthouse at night\" --init-image lighthouse.png --strength 0.7\n"
    "  danqing generate \"a lighthouse\" -m Z-Image-Turbo                            9 steps without guidance";

}  // namespace

void add_generate(CLI::App& app, Command& command) {
  auto o = std::make_shared<Options>();
  CLI::App* c = app.add_subcommand("generate", "Draw pictures from prompts");
  c->footer(kExamples);
  c->add_option("prompt", o->prompts,
                "Prompts, each drawn --batch times; '-' (or none, with input piped in) reads them from standard input, "
                "one a line");
  c->add_option("--prompt-file", o->prompt_file, "More prompts from a file, one a line");
  c->add_option("-o,--output", o->output,
                "File to write (.png, .jpg, .webp); {seed}, {index}, {index:04}, {prompt} are replaced; several "
                "pictures without "
                "a field get -0, -1, ...")
      ->capture_default_str();
  c->add_flag("--overwrite", o->overwrite, "Replace existing files (otherwise a free name is taken)");
  c->add_option("--size", o->size, "Picture size WIDTHxHEIGHT (default: the model's)");
  c->add_option("--width", o->width, "Width in pixels");
  c->add_option("--height", o->height, "Height in pixels");
  c->add_option("--steps", o->steps, "Denoising steps (default: the model's)");
  c->add_option("--guidance", o->guidance,
                "Guidance scale (default: the model's); without guidance: ERNIE-Image 1 or less, Z-Image 0");
  c->add_option(
      "--cfg-normalization", o->cfg_normalization,
      "Z-Image: limit a guided prediction to this many times the unguided one's norm (1 is usual; default: off)");
  c->add_option("--cfg-truncation", o->cfg_truncation,
                "Z-Image: no guidance in steps from where 1 - sigma exceeds this, 0 to 1 (default: 1, never)");
  c->add_option("--negative", o->negative, "Negative prompt, one for all or one for each prompt")
      ->expected(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  c->add_option("--seed", o->seed,
                "Seed, or one for each picture: 42 or 1,2,3 or random (the default). With one, picture i has seed+i; "
                "negative ones "
                "wrap as in torch (-1 is 2^64-1)");
  c->add_option("--batch", o->batch, "Pictures of each prompt")->capture_default_str();
  c->add_option("--batch-size", o->batch_size, "Pictures denoised together; 0 lets the device decide")
      ->capture_default_str();
  c->add_option("--init-image", o->init_image,
                "Picture to start from (PNG, JPEG, WebP); scaled to --size, which is its own by default");
  c->add_option("--strength", o->strength,
                "How much of --init-image is drawn anew: above 0, up to 1 (default: 0.6). Of N steps N x strength run");
  c->add_option("--sampler", o->sampler, "euler (as diffusers) or heun (second order, two passes a step)")
      ->capture_default_str();
  c->add_option("--shift", o->shift, "Timestep shift of the schedule (default: the scheduler's)");
  c->add_option("--noise", o->noise, "Generator of the noise: cpu or cuda, as torch draws it on either")
      ->capture_default_str();
  c->add_flag("--single-generator", o->single_generator, "One generator draws the noise of all pictures in one stream");
  c->add_option("--prompt-enhancer", o->enhancer, "on, off, or auto (the model's default)")->capture_default_str();
  c->add_option("--temperature", o->enhance.temperature, "Of the enhancer")
      ->group("Prompt enhancer")
      ->capture_default_str();
  c->add_option("--top-p", o->enhance.top_p, "Of the enhancer")->group("Prompt enhancer")->capture_default_str();
  c->add_option("--top-k", o->enhance.top_k, "Of the enhancer")->group("Prompt enhancer")->capture_default_str();
  c->add_option("--enhancer-seed", o->enhancer_seed, "Of the enhancer (default: the picture's seed)")
      ->group("Prompt enhancer");
  c->add_option("--max-tokens", o->enhance.max_new_tokens, "Limit of the enhancer's text")
      ->group("Prompt enhancer")
      ->capture_default_str();
  c->add_option("--quality", o->quality, "JPEG and WebP quality; WebP 100 is lossless")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  c->add_option("--dump-tensors", o->dump_directory, "Write every named intermediate to DIR/tensors.safetensors");
  c->add_flag("--json", o->json, "Print the result as JSON on standard output");
  c->add_flag("-q,--quiet", o->quiet, "No progress and no notes");
  add_model_options(*c, o->model);
  c->callback([o, &command] { command = [o] { return run(*o); }; });
}

}  // namespace danqing::app
