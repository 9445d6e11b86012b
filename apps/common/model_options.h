// Options that every command with a model shares.
#pragma once
#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "danqing/engine.h"

namespace danqing::app {

struct ModelOptions {
  ModelPaths paths;
  std::string device = "auto", dtype = "auto";
  int threads = 0;
};

/// -m, --transformer, --text-encoder, --vae, ... --device, --dtype, --threads
void add_model_options(CLI::App& command, ModelOptions& options);
/// Checks the words, finds the default model, opens the engine.
Result<std::unique_ptr<Engine>> open_engine(const ModelOptions& options);
Result<ComputeType> parse_compute_type(const std::string& text);

}  // namespace danqing::app
