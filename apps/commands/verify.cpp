// danqing verify: holds this build on this device to reference values, stage by stage.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "base/json.h"
#include "base/log.h"
#include "base/try.h"
#include "commands.h"
#include "common/device_option.h"
#include "common/interrupt.h"
#include "common/model_options.h"
#include "verify/stages.h"

namespace danqing::app {
namespace {

struct VerifyOptions {
  std::string tree, tokenizers, device = "auto", dtype = "auto", only;
  CpuWords cpu;
  bool json = false;
};

Result<int> run(const VerifyOptions& o) {
  if (o.dtype != "auto" && o.dtype != "f32" && o.dtype != "bf16")
    return usage_error("[--dtype] expected auto, f32 or bf16 (there are no goldens of others), got '{}'", o.dtype);
  DQ_TRY(const CpuOptions cpu, parse_cpu(o.cpu));
  DQ_TRY(const auto device, Device::open(o.device, cpu));
  verify::Options options;
  options.tree = o.tree;
  options.tokenizers = o.tokenizers;
  options.device = o.device;
  options.cpu = cpu;
  options.only = o.only;
  options.f32 = o.dtype != "bf16";
  options.bf16 = o.dtype != "f32";
  verify::Suite suite(options, device);
  DQ_CHECK(verify::add_tree(suite));
  catch_interrupts();
  const bool terminal = ::isatty(STDERR_FILENO);
  const auto progress = [&](int done, int all, const std::string& what) {
    if (terminal) fmt::print(stderr, "\r\033[K[{}/{}] {:.100}", done, all, what);
  };
  auto report = suite.run(progress, interrupted);
  if (terminal) fmt::print(stderr, "\r\033[K");
  if (!report) return std::move(report).error();
  if (report->rows.empty())
    return usage_error("[--only] expected a part of a 'stage case', or a pattern with * and ?; '{}' matches none",
                       o.only);
  const std::string text = o.json ? dump_json(report->json(), 2) + "\n" : report->table();
  std::fputs(text.c_str(), stdout);
  return report->count(verify::Status::failed) ? 1 : 0;
}

}  // namespace

void add_verify(CLI::App& app, Command& command) {
  auto o = std::make_shared<VerifyOptions>();
  CLI::App* c =
      app.add_subcommand("verify", "Hold every stage to reference values: prove a device, driver or build right");
  c->add_option(
       "dir", o->tree,
       "A tree of models with golden/ inside, rng/, units/, tokenizers/, gguf/ as far as present; or one such model")
      ->required();
  add_device_option(*c, o->device);
  c->add_option("--dtype", o->dtype, "f32: only goldens of f32 arithmetic; bf16: only those of bf16; auto: both")
      ->capture_default_str();
  add_cpu_options(*c, o->cpu, "CPU");
  c->add_option("--tokenizers", o->tokenizers, "Where the real tokenizers lie (default: tokenizers/ beside the tree)");
  c->add_option("--only", o->only, "Only cases whose 'stage case' holds this text, or matches it where it has * or ?");
  c->add_flag("--json", o->json, "Print the result as JSON, with the rule behind each tolerance");
  c->footer(
      "Examples:\n"
      "  danqing verify fixtures                          every stage that this build can run\n"
      "  danqing verify models/ERNIE-Image --device cpu   one model directory with golden/ inside\n"
      "  danqing verify fixtures --only 'dit_f32 *' --json\n"
      "Exit codes: 0 nothing failed, 1 something did, 2 wrong usage, 3 nothing to verify in the directory.\n"
      "Tolerances are those of the tree's page, or ten times the measured f32 spread where that is larger;\n"
      "cards get a factor, which is printed.");
  c->callback([o, &command] { command = [o] { return run(*o); }; });
}

}  // namespace danqing::app
