#include "common/plan_text.h"

#include <fmt/format.h>

#include "base/units.h"

namespace danqing::app {
namespace {

const char* word(Placement p) {
  switch (p) {
    case Placement::resident: return "resident";
    case Placement::offload: return "offload";
    case Placement::stream: return "stream";
  }
  return "";
}

}  // namespace

Json plan_json(const MemoryPlan& p) {
  Json components = Json::array();
  for (const ComponentPlan& c : p.components) {
    Json j{{"role", c.role},
           {"placement", word(c.placement)},
           {"types", c.types},
           {"quantized_on_load", c.quantized_on_load},
           {"file_bytes", c.file_bytes},
           {"weight_bytes", c.weight_bytes},
           {"held_bytes", c.held_bytes},
           {"compute_bytes", c.compute_bytes}};
    if (c.placement == Placement::stream) {
      j["layers"] = c.layers;
      j["resident_layers"] = c.resident_layers;
      j["streamed_bytes"] = c.streamed_bytes;
    }
    components.push_back(std::move(j));
  }
  Json j{{"mode", p.mode},
         {"device", p.device},
         {"width", p.width},
         {"height", p.height},
         {"batch_size", p.batch_size},
         {"text_tokens", p.text_tokens},
         {"vae_tile", p.vae_tile},
         {"device_memory", p.device_memory},
         {"reserve", p.reserve},
         {"device_peak", p.device_peak},
         {"host_peak", p.host_peak},
         {"host_files", p.host_files},
         {"disk_reads", p.disk_reads},
         {"components", std::move(components)},
         {"notes", p.notes}};
  if (!p.better.empty()) j["better"] = {{"mode", p.better}, {"device_memory", p.better_needs}};
  return j;
}

std::string placement_text(const ComponentPlan& c) {
  switch (c.placement) {
    case Placement::resident: return "resident";
    case Placement::offload: return "while it computes";
    case Placement::stream: return fmt::format("{} of {} layers stay", c.resident_layers, c.layers);
  }
  return "";
}

std::string plan_text(const MemoryPlan& p) {
  std::string out =
      fmt::format("{}x{}, batch {}, {} text tokens on {}: {} allowed, {} of it in reserve\n\n", p.width, p.height,
                  p.batch_size, p.text_tokens, p.device, format_bytes(p.device_memory), format_bytes(p.reserve));
  out += fmt::format("{:<14}{:<20}{:>11}{:>12}{:>12}{:>12}  {}\n", "component", "types", "in files", "weights", "held",
                     "compute", "placement");
  for (const ComponentPlan& c : p.components)
    out += fmt::format("{:<14}{:<20}{:>11}{:>12}{:>12}{:>12}  {}\n", c.role, c.types, format_bytes(c.file_bytes),
                       format_bytes(c.weight_bytes), format_bytes(c.held_bytes), format_bytes(c.compute_bytes),
                       placement_text(c));
  out += fmt::format("\n{}: device peak {}, host {} and {} of files", p.mode, format_bytes(p.device_peak),
                     format_bytes(p.host_peak), format_bytes(p.host_files));
  if (p.disk_reads) out += fmt::format(", {} read from disk at first", format_bytes(p.disk_reads));
  out += "\n";
  if (p.vae_tile > 0) out += fmt::format("the picture is decoded in tiles of {} latents\n", p.vae_tile);
  for (const ComponentPlan& c : p.components)
    if (c.streamed_bytes)
      out += fmt::format("{} of the {} are copied for each pass\n", format_bytes(c.streamed_bytes), c.role);
  for (const std::string& n : p.notes) out += "note: " + n + "\n";
  if (!p.better.empty()) out += fmt::format("next better: {}, from {} on\n", p.better, format_bytes(p.better_needs));
  return out;
}

}  // namespace danqing::app
