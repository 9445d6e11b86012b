// The program's subcommands. Each file in commands/ declares its options and says what to run.
#pragma once
#include <CLI/CLI.hpp>
#include <functional>

#include "danqing/result.h"

namespace danqing::app {

/// Filled by the chosen subcommand's callback; run by main after parsing. Returns the exit code.
using Command = std::function<Result<int>()>;

void add_generate(CLI::App& app, Command& command);
void add_enhance(CLI::App& app, Command& command);
void add_plan(CLI::App& app, Command& command);
void add_inspect(CLI::App& app, Command& command);
void add_verify(CLI::App& app, Command& command);
void add_bench(CLI::App& app, Command& command);
void add_serve(CLI::App& app, Command& command);
void add_worker(CLI::App& app, Command& command);
void add_queue(CLI::App& app, Command& command);
void add_convert(CLI::App& app, Command& command);
void add_monitor(CLI::App& app, Command& command);
void add_doctor(CLI::App& app, Command& command);
void add_tune(CLI::App& app, Command& command);
void add_pull(CLI::App& app, Command& command);
void add_models(CLI::App& app, Command& command);
/// A subcommand of `bench`.
void add_bandwidth(CLI::App& bench, Command& command);

}  // namespace danqing::app
