// danqing bench: the ruler. Seconds, GFLOP/s, tokens/s and memory of each stage, on a model or on made-up weights.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <functional>

#include "base/json.h"
#include "base/try.h"
#include "base/units.h"
#include "bench/accuracy.h"
#include "bench/load.h"
#include "bench/presets.h"
#include "bench/stages.h"
#include "bench/synthetic.h"
#include "commands.h"
#include "common/interrupt.h"
#include "common/model_options.h"
#include "device/kernels/onednn.h"
#include "fetch/models.h"
#include "models/ernie_image/transformer.h"
#include "models/mistral3/model.h"
#include "models/qwen3/qwen3.h"
#include "models/vae/vae.h"
#include "models/z_image/transformer.h"
#include "pipeline/family.h"

namespace danqing::app {
namespace {

struct Options {
  ModelOptions model;
  BenchOptions bench;
  std::string config, size, weights, tile_memory;
  std::vector<std::string> stages;
  int layers = 0, steps = 0;
  bool json = false;
};

/// A config with fewer layers: the stack's length is the only thing that changes.
void shorten(Json& config, int layers) {
  for (Json* j : {&config, config.contains("text_config") ? &config["text_config"] : &config})
    for (const char* key : {"num_layers", "num_hidden_layers", "n_layers"})
      if (j->contains(key)) (*j)[key] = layers;
}

Result<ComponentProvider> synthetic_provider(const Options& o) {
  DQ_TRY(auto configs, load_configs(o.config));
  if (o.layers > 0)
    for (auto& [role, config] : configs)
      if (role != "vae") shorten(config, o.layers);
  ComponentProvider p;
  p.get = [configs](const std::string& role) -> Result<std::optional<ComponentFiles>> {
    const auto it = configs.find(role);
    if (it == configs.end()) return std::optional<ComponentFiles>();
    DQ_TRY(const auto specs, specs_of(role, it->second));
    DQ_TRY(ComponentFiles files, synthesize(role, it->second, specs));
    return std::optional<ComponentFiles>(std::move(files));
  };
  return p;
}

Result<ComponentProvider> file_provider(ModelPaths paths, std::string& title) {
  if (paths.model.empty()) {
    DQ_TRY(paths.model, default_model());
  }
  DQ_TRY(paths.model, fetch::resolve_model(paths.model));
  DQ_CHECK(open_checkpoint(paths));
  title = std::filesystem::absolute(paths.model.empty() ? paths.transformer : paths.model).lexically_normal().string();
  ComponentProvider p;
  p.get = [paths](const std::string& role) -> Result<std::optional<ComponentFiles>> {
    DQ_TRY(const Checkpoint checkpoint, open_checkpoint(paths));  // anew: opening is part of a load
    const ComponentFiles* f = checkpoint.find(role);
    return f ? std::optional(*f) : std::optional<ComponentFiles>();
  };
  return p;
}

/// A whole picture: engine opened, loaded, drawn, twice (cold and warm).
Result<void> bench_pipeline(const Options& o, const std::function<void(Measurement)>& on_row) {
  std::unique_ptr<Engine> engine;
  GenerateRequest request;
  request.prompts = {"a red apple on green grass under a blue sky"};
  request.seeds = {42};
  request.enhancer = EnhancerMode::off;
  request.width = o.size.empty() ? 0 : o.bench.width;
  request.height = o.size.empty() ? 0 : o.bench.height;
  if (o.steps > 0) request.num_inference_steps = o.steps;
  for (const char* what : {"picture, with opening and loading", "picture, loaded"}) {
    GenerateResult result;
    DQ_TRY(Measurement m, measure("pipeline", what, 1, false, [&]() -> Result<void> {
             if (!engine) {
               DQ_TRY(engine, open_engine(o.model));
             }
             DQ_TRY(result, engine->generate(request, {.cancelled = interrupted}));
             return {};
           }));
    m.what += fmt::format(" {}x{}, {} steps", result.width, result.height, result.num_inference_steps);
    on_row(m);
    Measurement step = m;
    step.what = "median step";
    step.seconds = step.min_seconds = result.seconds_per_step;
    step.repetitions = result.num_inference_steps;
    on_row(step);
  }
  return {};
}

Result<int> run(Options o) {
  if (o.config.empty() && o.layers > 0)
    return usage_error("[--layers] goes with --config: a model has the layers it has");
  if (!o.config.empty() && !o.model.paths.model.empty())
    return usage_error("[--config] and --model exclude each other");
  o.bench.stages.insert(o.stages.begin(), o.stages.end());
  if (!o.config.empty() && o.bench.stages.count("pipeline"))
    return usage_error("[--stage] pipeline needs a model with a tokenizer, not --config");
  if (!o.config.empty() && o.bench.stages.count("load"))
    return usage_error("[--stage] load needs a model's files, not --config");
  const std::string default_size = o.config.empty() ? "128x128" : "512x512";
  DQ_TRY(std::tie(o.bench.width, o.bench.height), parse_size(o.size.empty() ? default_size : o.size));
  if (o.bench.width % 16 || o.bench.height % 16)
    return usage_error("[--size] expected multiples of 16, got {}x{}", o.bench.width, o.bench.height);
  if (!o.tile_memory.empty()) {
    DQ_TRY(o.bench.vae_tiling.host_memory, parse_bytes(o.tile_memory));
  }
  DQ_TRY(const ComputeType asked, parse_compute_type(o.model.dtype));
  const ComputeType type = asked != ComputeType::automatic ? asked
                           : o.config.empty()              ? ComputeType::f32
                                                           : ComputeType::bf16;
  std::optional<DType> kept;
  if (!o.weights.empty()) {
    kept = dtype_from_name(o.weights);
    if (!kept) return usage_error("[--weights] expected a dtype such as bf16, q8_0 or q4_K, got '{}'", o.weights);
  }
  DQ_TRY(const CpuOptions cpu, parse_cpu(o.model.cpu));
  DQ_TRY(const std::shared_ptr<Device> device, Device::open(o.model.device, cpu));
  std::string title = o.config;
  DQ_TRY(ComponentProvider components, o.config.empty() ? file_provider(o.model.paths, title) : synthetic_provider(o));
  components.policy = [type, kept](const ComponentFiles& f) {
    return kept ? WeightPolicy{kept} : weight_policy(f, type);
  };

  catch_interrupts();
  std::vector<Measurement> rows;
  const auto print = [&](const std::string& text) {
    if (!o.json) std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
  };
  print(fmt::format("{} on {} ({}), {} threads, {}, kernels {}\n{}", title, device->info().name,
                    device->is_cpu() ? processor_name() : device->info().description, device->threads(), cpu_features(),
                    device->kernels_text(), table_head()));
  const auto on_row = [&](Measurement m) {
    print(table_row(m));
    rows.push_back(std::move(m));
  };
  Result<void> status = bench_stages(device, components, o.bench, on_row, interrupted);
  if (status && o.bench.stages.count("accuracy")) status = bench_accuracy(cpu, components, o.bench, on_row);
  if (status && o.bench.stages.count("load")) status = bench_load(device, components, o.bench.repetitions, on_row);
  if (status && o.config.empty() && o.bench.wants("pipeline")) status = bench_pipeline(o, on_row);
  if (o.json) {
    Json j{{"version", std::string(version())}, {"ggml", ggml_version_text()},      {"device", device->info().name},
           {"processor", processor_name()},     {"cpu_features", cpu_features()},   {"threads", device->threads()},
           {"kernels", device->kernels_text()}, {"onednn", kernels::onednn_text()}, {"config", title},
           {"results", Json::array()}};
    for (const Measurement& m : rows) j["results"].push_back(to_json(m));
    std::fputs((dump_json(j, 2) + "\n").c_str(), stdout);
  }
  if (!status) return std::move(status).error();
  return 0;
}

}  // namespace

void add_bench(CLI::App& app, Command& command) {
  auto o = std::make_shared<Options>();
  CLI::App* c = app.add_subcommand("bench", "Measure seconds, GFLOP/s, tokens/s and memory of each stage");
  c->add_option(
      "--config", o->config,
      "Made-up weights of this config instead of a model: ernie-8b, z-image-6b, or a directory with config.json "
      "files");
  c->add_option("--layers", o->layers, "With --config: this many layers instead of all")->check(CLI::Range(1, 1000));
  c->add_option("--size", o->size, "Picture size (default: 128x128 for a model, 512x512 with --config)");
  c->add_flag("--no-warm-up{false}", o->bench.warm_up, "Count the first run too");
  c->add_option("--stage", o->stages, "Only these: text, enhancer, denoiser, vae, pipeline, load, accuracy")
      ->check(CLI::IsMember({"text", "enhancer", "denoiser", "vae", "pipeline", "load", "accuracy"}));
  c->add_option("--weights", o->weights, "Keep matrices in this dtype, e.g. q8_0 (default: by --dtype)");
  c->add_option("--text-tokens", o->bench.text_tokens, "Text tokens of the denoiser")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  c->add_option("--encoder-tokens", o->bench.encoder_tokens, "Tokens of the text encoder")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  c->add_option("--enhancer-prompt", o->bench.enhancer_prompt, "Prompt tokens of the enhancer")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  c->add_option("--new-tokens", o->bench.new_tokens, "Tokens that the enhancer writes")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  c->add_option("--batch", o->bench.batch, "Pictures in one denoiser pass")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  c->add_option("--vae-tile", o->bench.vae_tiling.tile, "Decode in tiles of this many latents (0: all at once)")
      ->check(CLI::Range(0, 65536))
      ->capture_default_str();
  c->add_option("--vae-tile-memory", o->tile_memory,
                "With --vae-tile: host memory for pictures between passes, e.g. 2GiB (default: 768MiB)");
  c->add_option("--steps", o->steps, "Steps of the whole pipeline (default: the model's)")->check(CLI::Range(1, 1000));
  c->add_option("--repeat", o->bench.repetitions, "Repetitions; the median and the best are shown")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  c->add_flag("--json", o->json, "Print JSON");
  c->footer(
      "Examples:\n"
      "  danqing bench                                              the built-in model, every stage and a whole "
      "picture\n"
      "  danqing bench -m ERNIE-Image --stage denoiser --size 1024x1024 --dtype bf16\n"
      "  danqing bench --config ernie-8b --layers 2 --size 512x512  true shapes with made-up weights\n"
      "  danqing bench --config z-image-6b --layers 2 --stage denoiser\n"
      "  danqing bench bandwidth -m ERNIE-Image                     memory, card and disk: what streaming can reach\n"
      "GFLOP/s count two operations for each multiply-add of matrices, convolutions and attention.");
  add_model_options(*c, o->model);
  c->require_subcommand(0, 1);
  add_bandwidth(*c, command);
  // The callback of a command comes after that of its subcommand.
  c->callback([o, c, &command] {
    if (c->get_subcommands().empty()) command = [o] { return run(*o); };
  });
}

}  // namespace danqing::app
