#include "common/model_options.h"

#include <cmath>
#include <cstdlib>

#include "base/try.h"
#include "common/device_option.h"
#include "fetch/models.h"

namespace danqing::app {

void add_model_options(CLI::App& c, ModelOptions& o) {
  c.add_option(
       "-m,--model", o.paths.model,
       "Model: a diffusers directory, one file, or owner/name of a pulled one (default: the installed danqing-mini, "
       "or $DANQING_MODEL)")
      ->group("Model");
  c.add_option("--transformer", o.paths.transformer, "Denoiser from this file or directory")->group("Model");
  c.add_option("--text-encoder", o.paths.text_encoder, "Text encoder from this file or directory")->group("Model");
  c.add_option("--vae", o.paths.vae, "VAE from this file or directory")->group("Model");
  c.add_option("--pe", o.paths.pe, "Prompt enhancer model from this file or directory")->group("Model");
  c.add_option("--tokenizer", o.paths.tokenizer, "Tokenizer directory or tokenizer.json")->group("Model");
  c.add_option("--pe-tokenizer", o.paths.pe_tokenizer, "Prompt enhancer's tokenizer directory")->group("Model");
  c.add_option("--scheduler", o.paths.scheduler, "scheduler_config.json or its directory")->group("Model");
  c.add_option("--lora", o.lora, "LoRA adapter for the denoiser: FILE or FILE:WEIGHT; may be repeated")
      ->group("Model")
      ->expected(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  add_device_option(c, o.device, "Model");
  c.add_option("--tune", o.tune, "auto: a card is tried before its first use (danqing tune); off: taken as it is")
      ->group("Model")
      ->capture_default_str();
  c.add_option("--dtype", o.dtype, "auto, f32, bf16, f16: in which precision the networks run")
      ->group("Model")
      ->capture_default_str();
  add_cpu_options(c, o.cpu, "Model");
  add_memory_options(c, o.memory);
}

void add_cpu_options(CLI::App& c, CpuWords& w, const std::string& group) {
  c.add_option("--threads", w.threads, "CPU threads (default: the physical cores that this process may use)")
      ->group(group)
      ->check(CLI::Range(0, 1024));
  c.add_option("--cpu-kernels", w.kernels, "danqing, or ggml: plain ggml, to compare with")
      ->group(group)
      ->capture_default_str();
  c.add_option("--cpu-precision", w.precision,
               "auto, f32, bf16 (as torch), i16 (12-bit integers, finer than bf16) or i8 (W8A8, fastest, coarser than "
               "bf16): how weights of less than 24 bits are multiplied on the CPU")
      ->group(group)
      ->capture_default_str();
  c.add_option("--numa", w.numa, "off, isolate (one memory node) or distribute (all of them)")
      ->group(group)
      ->capture_default_str();
}

Result<CpuOptions> parse_cpu(const CpuWords& w) {
  CpuOptions o;
  o.threads = w.threads;
  if (w.kernels == "ggml")
    o.kernels = CpuKernels::ggml;
  else if (w.kernels != "danqing")
    return usage_error("[--cpu-kernels] expected danqing or ggml, got '{}'", w.kernels);
  if (w.precision == "f32")
    o.precision = CpuPrecision::f32;
  else if (w.precision == "bf16")
    o.precision = CpuPrecision::bf16;
  else if (w.precision == "i16" || w.precision == "int16")
    o.precision = CpuPrecision::i16;
  else if (w.precision == "i8" || w.precision == "int8")
    o.precision = CpuPrecision::i8;
  else if (w.precision != "auto")
    return usage_error("[--cpu-precision] expected auto, f32, bf16, i16 or i8, got '{}'", w.precision);
  if (w.numa == "isolate")
    o.numa = Numa::isolate;
  else if (w.numa == "distribute")
    o.numa = Numa::distribute;
  else if (w.numa != "off")
    return usage_error("[--numa] expected off, isolate or distribute, got '{}'", w.numa);
  return o;
}

Result<ModelPaths::Adapter> parse_lora(const std::string& word) {
  std::error_code ec;
  const size_t colon = word.rfind(':');
  if (colon == std::string::npos || std::filesystem::exists(word, ec)) return ModelPaths::Adapter{word, 1};
  const std::string number = word.substr(colon + 1);
  char* end = nullptr;
  const float weight = std::strtof(number.c_str(), &end);
  if (number.empty() || *end != 0 || !std::isfinite(weight) || std::fabs(weight) > 100)
    return usage_error("[--lora] expected FILE or FILE:WEIGHT with a weight from -100 to 100, got '{}'", word);
  return ModelPaths::Adapter{word.substr(0, colon), weight};
}

Result<ComputeType> parse_compute_type(const std::string& text) {
  if (text == "auto") return ComputeType::automatic;
  if (text == "f32" || text == "fp32" || text == "float32") return ComputeType::f32;
  if (text == "bf16" || text == "bfloat16") return ComputeType::bf16;
  if (text == "f16" || text == "fp16" || text == "float16") return ComputeType::f16;
  return usage_error("[--dtype] expected auto, f32, bf16 or f16, got '{}'", text);
}

Result<std::unique_ptr<Engine>> open_engine(const ModelOptions& o) {
  EngineOptions e;
  e.paths = o.paths;
  DQ_TRY(e.paths.model, fetch::resolve_model(o.paths.model));
  // A network given by itself belongs to another model than the built-in one: nothing of that is mixed in.
  const bool parts = !o.paths.transformer.empty() || !o.paths.text_encoder.empty() || !o.paths.vae.empty();
  if (e.paths.model.empty() && !parts) {
    DQ_TRY(e.paths.model, default_model());
  }
  for (const std::string& word : o.lora) {
    DQ_TRY(ModelPaths::Adapter adapter, parse_lora(word));
    e.paths.adapters.push_back(std::move(adapter));
  }
  e.device = o.device;
  if (o.tune != "auto" && o.tune != "off") return usage_error("[--tune] expected auto or off, got '{}'", o.tune);
  e.tune = o.tune == "auto";
  DQ_TRY(e.cpu, parse_cpu(o.cpu));
  DQ_TRY(e.memory, parse_memory(o.memory));
  DQ_TRY(e.compute_type, parse_compute_type(o.dtype));
  return Engine::open(e);
}

}  // namespace danqing::app
