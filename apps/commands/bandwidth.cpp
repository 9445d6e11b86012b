// danqing bench bandwidth: how fast weights can reach where they are used.
#include "bench/bandwidth.h"

#include <fmt/format.h>

#include <cstdio>

#include "base/try.h"
#include "base/units.h"
#include "checkpoint/checkpoint.h"
#include "commands.h"
#include "common/device_option.h"
#include "danqing/model.h"

namespace danqing::app {
namespace {

struct Options {
  ModelPaths paths;
  std::string device = "auto", bytes = "256MiB", file;
  int repetitions = 3;
  bool json = false;
};

/// The denoiser is what a pass streams: its bytes, and a file of it for the disk.
Result<void> take_model(const ModelPaths& paths, BandwidthOptions& o) {
  DQ_TRY(const Checkpoint checkpoint, open_checkpoint(paths));
  const ComponentFiles* c = checkpoint.find("transformer");
  if (!c || !c->source)
    return bad_input("[bandwidth] expected a model with a denoiser in {}, got none", paths.model.string());
  for (const TensorInfo& t : c->source->tensors()) o.pass_bytes += static_cast<double>(t.bytes);
  if (o.file.empty() && !c->source->files().empty()) o.file = c->source->files().front();
  return {};
}

Result<int> run(const Options& o) {
  BandwidthOptions b;
  DQ_TRY(const uint64_t bytes, parse_bytes(o.bytes));
  if (bytes < (1 << 20) || bytes > (uint64_t{64} << 30))
    return usage_error("[--bytes] expected 1MiB to 64GiB, got '{}'", o.bytes);
  b.bytes = static_cast<size_t>(bytes);
  b.repetitions = o.repetitions;
  b.file = o.file;
  if (!o.paths.model.empty()) DQ_CHECK(take_model(o.paths, b));
  DQ_TRY(const std::shared_ptr<Device> device, Device::open(o.device, {}));
  if (!o.json) std::printf("%s (%s)\n", device->info().name.c_str(), device->info().description.c_str());
  std::vector<BandwidthRow> rows;
  measure_bandwidth(*device, b, [&](const BandwidthRow& r) {
    rows.push_back(r);
    if (o.json) return;
    const std::string rate =
        r.bytes_per_second > 0 ? fmt::format("{:8.2f} GB/s", r.bytes_per_second / 1e9) : "       -     ";
    std::printf("%-26s %s  %s\n", r.id.c_str(), rate.c_str(), r.note.c_str());
    std::fflush(stdout);
  });
  const std::string sentence = streaming_sentence(rows, b.pass_bytes);
  if (o.json) {
    Json j{{"device", device->info().name}, {"bytes", b.bytes}, {"results", Json::array()}, {"streaming", sentence}};
    if (b.pass_bytes > 0) j["pass_bytes"] = b.pass_bytes;
    for (const BandwidthRow& r : rows) j["results"].push_back(to_json(r));
    std::printf("%s\n", dump_json(j, 2).c_str());
  } else if (!sentence.empty()) {
    std::printf("%s\n", sentence.c_str());
  }
  return 0;
}

}  // namespace

void add_bandwidth(CLI::App& bench, Command& command) {
  auto o = std::make_shared<Options>();
  CLI::App* c = bench.add_subcommand("bandwidth", "How fast bytes move: host memory by node, host and device, disk");
  c->footer(
      "Examples:\n"
      "  danqing bench bandwidth                        host memory, and the card if there is one\n"
      "  danqing bench bandwidth -m ERNIE-Image         also the disk it lies on, and what a pass of it costs\n"
      "  danqing bench bandwidth --file big.safetensors --json\n"
      "GB are 10^9 bytes. A copy counts the bytes copied, once. The best of --repeat counts.");
  c->add_option("-m,--model", o->paths.model, "Model whose denoiser is streamed, and whose file is read");
  add_device_option(*c, o->device);
  c->add_option("--file", o->file, "Read this file for the disk (at most 4 GiB of it)");
  c->add_option("--bytes", o->bytes, "Size of one copy")->capture_default_str();
  c->add_option("--repeat", o->repetitions, "Repetitions")->check(CLI::Range(1, 1000))->capture_default_str();
  c->add_flag("--json", o->json, "Print JSON");
  c->callback([o, &command] { command = [o] { return run(*o); }; });
}

}  // namespace danqing::app
