#include "common/memory_options.h"

#include "base/try.h"
#include "base/units.h"
#include "common/parse.h"

namespace danqing::app {
namespace {

Result<uint64_t> bytes_of(const char* option, const std::string& text, uint64_t least) {
  auto bytes = parse_bytes(text);
  if (!bytes || *bytes < least)
    return usage_error("[{}] expected a number of bytes such as 32GiB or 512M, got '{}'", option, text);
  return bytes;
}

}  // namespace

void add_memory_options(CLI::App& c, MemoryWords& w) {
  const char* group = "Memory";
  c.add_option("--device-memory", w.device_memory,
               "How much of the device's memory may be used, the reserve included: 32GiB, 12G (default: what is free)")
      ->group(group);
  c.add_option("--reserve", w.reserve, "Of it, left to the driver and others (default: a tenth, at most 4 GiB)")
      ->group(group);
  c.add_option("--host-memory", w.host_memory,
               "How much host memory there is for the files' pages (default: what is available)")
      ->group(group);
  c.add_option("--offload", w.offload,
               "auto, none (all components stay on the device), component (each only while it computes) or stream "
               "(layers take turns)")
      ->group(group)
      ->capture_default_str();
  c.add_option("--vae-tiling", w.vae_tiling,
               "auto, on or off: decode in tiles, which gives the same picture in less memory")
      ->group(group)
      ->capture_default_str();
  c.add_option("--attention-chunk", w.attention_chunk,
               "auto, or how many queries attention takes at once where it writes its scores out (cards, plain ggml)")
      ->group(group)
      ->capture_default_str();
  c.add_option(
       "--weight-type", w.weight_type,
       "auto (as stored; quantised on load where nothing else fits well), stored, or a type: q8_0, q4_K, bf16...")
      ->group(group)
      ->capture_default_str();
}

Result<MemoryOptions> parse_memory(const MemoryWords& w) {
  MemoryOptions o;
  if (!w.device_memory.empty()) {
    DQ_TRY(o.device_memory, bytes_of("--device-memory", w.device_memory, 1));
  }
  if (!w.reserve.empty()) {
    DQ_TRY(o.reserve, bytes_of("--reserve", w.reserve, 0));
  }
  if (!w.host_memory.empty()) {
    DQ_TRY(o.host_memory, bytes_of("--host-memory", w.host_memory, 1));
  }
  if (w.offload == "none")
    o.offload = Offload::none;
  else if (w.offload == "component")
    o.offload = Offload::component;
  else if (w.offload == "stream")
    o.offload = Offload::stream;
  else if (w.offload != "auto")
    return usage_error("[--offload] expected auto, none, component or stream, got '{}'", w.offload);
  if (w.vae_tiling == "on")
    o.vae_tiling = VaeTiling::on;
  else if (w.vae_tiling == "off")
    o.vae_tiling = VaeTiling::off;
  else if (w.vae_tiling != "auto")
    return usage_error("[--vae-tiling] expected auto, on or off, got '{}'", w.vae_tiling);
  DQ_TRY(o.attention_chunk, parse_count_or_auto(w.attention_chunk, "--attention-chunk", "queries"));
  o.weight_type = w.weight_type;
  return o;
}

}  // namespace danqing::app
