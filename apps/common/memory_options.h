// Options that say how much memory a command may use.
#pragma once
#include <CLI/CLI.hpp>
#include <string>

#include "danqing/memory.h"
#include "danqing/result.h"

namespace danqing::app {

/// --device-memory, --reserve, --host-memory, --offload, --vae-tiling, --attention-chunk, --weight-type
struct MemoryWords {
  std::string device_memory, reserve, host_memory;
  std::string offload = "auto", vae_tiling = "auto", attention_chunk = "auto", weight_type = "auto";
};
void add_memory_options(CLI::App& command, MemoryWords& words);
Result<MemoryOptions> parse_memory(const MemoryWords& words);

}  // namespace danqing::app
