// Options that every command with a model shares.
#pragma once
#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "common/memory_options.h"
#include "danqing/engine.h"

namespace danqing::app {

/// --threads, --cpu-kernels, --cpu-precision, --numa
struct CpuWords {
  int threads = 0;
  std::string kernels = "danqing", precision = "auto", numa = "off";
};
void add_cpu_options(CLI::App& command, CpuWords& words, const std::string& group);
Result<CpuOptions> parse_cpu(const CpuWords& words);
/// "file.safetensors:0.8": the weight is 1 where none is given.
Result<ModelPaths::Adapter> parse_lora(const std::string& word);

struct ModelOptions {
  ModelPaths paths;
  std::string device = "auto", dtype = "auto", tune = "auto";
  std::vector<std::string> lora;
  CpuWords cpu;
  MemoryWords memory;
};

/// -m, --transformer, --text-encoder, --vae, ... --device, --dtype, those of the CPU and of the memory
void add_model_options(CLI::App& command, ModelOptions& options);
/// Checks the words, finds the default model, opens the engine.
Result<std::unique_ptr<Engine>> open_engine(const ModelOptions& options);
Result<ComputeType> parse_compute_type(const std::string& text);

}  // namespace danqing::app
