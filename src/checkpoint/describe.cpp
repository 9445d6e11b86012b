#include "checkpoint/describe.h"

#include <algorithm>

#include "base/text.h"
#include "base/try.h"
#include "base/units.h"
#include "checkpoint/kinds.h"

namespace danqing {
namespace {

namespace fs = std::filesystem;

uint64_t scale_bytes(const TensorInfo& t) {
  if (!t.scale) return 0;
  return t.scale->values.bytes + (t.scale->global ? t.scale->global->bytes : 0);
}

std::string scale_text(const TensorScale& s) {
  switch (s.layout) {
    case TensorScale::Layout::tensor: return "one";
    case TensorScale::Layout::rows: return "one a row";
    case TensorScale::Layout::grid:
    case TensorScale::Layout::tiles: break;
  }
  return fmt::format("one for {}x{} values", s.block_rows, s.block_columns);
}

Json describe_source(const TensorSource& source, bool with_tensors) {
  uint64_t parameters = 0, bytes = 0;
  Json dtypes = Json::object(), list = Json::array(), files = Json::array();
  for (const TensorInfo& t : source.tensors()) {
    const auto count = static_cast<uint64_t>(element_count(t.shape));
    const uint64_t size = t.bytes + scale_bytes(t);
    parameters += count;
    bytes += size;
    Json& d = dtypes[std::string(name(t.dtype))];
    if (d.is_null()) d = {{"tensors", 0}, {"parameters", 0}, {"bytes", 0}};
    d["tensors"] = d["tensors"].get<uint64_t>() + 1;
    d["parameters"] = d["parameters"].get<uint64_t>() + count;
    d["bytes"] = d["bytes"].get<uint64_t>() + size;
    if (!with_tensors) continue;
    list.push_back({{"name", t.name},
                    {"dtype", std::string(name(t.dtype))},
                    {"shape", t.shape},
                    {"bytes", size},
                    {"file", source.files()[t.file].filename().string()}});
    if (t.scale) list.back()["scale"] = scale_text(*t.scale);
  }
  for (const fs::path& f : source.files()) files.push_back(f.filename().string());
  Json holds = Json::array();
  for (const TensorKind& k : recognise_all(source)) holds.push_back(k.description);
  Json out = {{"format", source.format() == TensorSource::Format::gguf ? "gguf" : "safetensors"},
              {"files", files},
              {"tensors", source.tensors().size()},
              {"parameters", parameters},
              {"bytes", bytes},
              {"dtypes", dtypes},
              {"metadata", source.metadata()},
              {"holds", holds}};
  if (with_tensors) out["tensor_list"] = std::move(list);
  return out;
}

Json describe_component(const ComponentFiles& c, bool with_tensors) {
  Json out = describe_source(*c.source, with_tensors);
  out["role"] = c.role;
  out["path"] = c.path.string();
  if (!c.class_name.empty()) out["class"] = c.class_name;
  // Names alone cannot tell a text encoder from an enhancer with tied output; the class can.
  const auto kind = kind_of_class(c.class_name);
  out["description"] = kind ? Json(kind->description) : out["holds"].empty() ? Json("unknown kind") : out["holds"][0];
  return out;
}

Result<Json> describe_pipeline(const fs::path& path, bool with_tensors) {
  DQ_TRY(const Checkpoint c, open_checkpoint({.model = path}));
  Json out = {{"kind", "pipeline"}, {"description", c.pipeline_class}, {"pipeline_class", c.pipeline_class}};
  Json components = Json::array();
  for (const char* role : {"transformer", "text_encoder", "vae", "pe"})
    if (const ComponentFiles* f = c.find(role)) components.push_back(describe_component(*f, with_tensors));
  out["components"] = std::move(components);
  if (!c.tokenizer.empty()) out["tokenizer"] = c.tokenizer.string();
  if (!c.pe_tokenizer.empty()) out["pe_tokenizer"] = c.pe_tokenizer.string();
  if (c.scheduler) out["scheduler"] = *c.scheduler;
  return out;
}

Result<Json> describe_single(const fs::path& path, bool with_tensors) {
  std::error_code ec;
  const fs::path config = path / "config.json";
  ComponentFiles c{.path = path};
  DQ_TRY(c.source, TensorSource::open(path));
  if (fs::is_directory(path, ec) && fs::exists(config, ec)) {
    DQ_TRY(const Json json, read_json(config));
    c.class_name = class_of_config(json);
  }
  const auto by_class = kind_of_class(c.class_name), by_names = recognise(*c.source);
  if (by_class)
    c.role = by_class->role;
  else if (by_names)
    c.role = by_names->role;
  Json component = describe_component(c, with_tensors);
  return Json{{"kind", c.role.empty() ? "tensors" : "component"},
              {"description", component["description"]},
              {"components", Json::array({component})}};
}

std::string count_text(uint64_t n) {
  const auto v = static_cast<double>(n);
  if (n < 10'000) return fmt::format("{}", n);
  return n < 1'000'000       ? fmt::format("{:.1f} K", v / 1e3)
         : n < 1'000'000'000 ? fmt::format("{:.2f} M", v / 1e6)
                             : fmt::format("{:.2f} B", v / 1e9);
}

// The dtypes by bytes, the largest first: "q4_K (14 tensors, 1.20 MiB) + f32 (21 tensors, 70.00 KiB)".
std::string dtypes_text(const Json& dtypes) {
  std::vector<std::pair<uint64_t, std::string>> order;
  for (const auto& [name, d] : dtypes.items())
    order.emplace_back(d["bytes"].get<uint64_t>(),
                       fmt::format("{} ({} tensors, {})", name, d["tensors"].get<uint64_t>(),
                                   format_bytes(d["bytes"].get<uint64_t>())));
  std::sort(order.rbegin(), order.rend());
  std::string out;
  for (const auto& [bytes, text] : order) out += (out.empty() ? "" : " + ") + text;
  return out.empty() ? "none" : out;
}

std::string component_text(const Json& c) {
  std::string out;
  const auto line = [&](std::string_view key, const std::string& value) {
    out += fmt::format("  {:<11} {}\n", key, value);
  };
  const std::string role = c["role"].get<std::string>();
  out += fmt::format("{}: {}\n", role.empty() ? "tensors" : role, one_line(c["description"].get<std::string>()));
  if (c.contains("class")) line("class", one_line(c["class"].get<std::string>()));
  if (c["holds"].size() > 1) {
    std::string all;
    for (const Json& h : c["holds"]) all += (all.empty() ? "" : ", ") + h.get<std::string>();
    line("holds", all);
  }
  const size_t files = c["files"].size();
  line("path", one_line(c["path"].get<std::string>(), 4096) + (files > 1 ? fmt::format(" ({} files)", files) : ""));
  line("format", c["format"].get<std::string>());
  line("parameters", fmt::format("{} in {} tensors, {}", count_text(c["parameters"].get<uint64_t>()),
                                 c["tensors"].get<uint64_t>(), format_bytes(c["bytes"].get<uint64_t>())));
  line("dtypes", dtypes_text(c["dtypes"]));
  for (const auto& [key, value] : c["metadata"].items())
    line("metadata", fmt::format("{} = {}", one_line(key), one_line(value.get<std::string>(), 200)));
  if (const auto list = c.find("tensor_list"); list != c.end())
    for (const Json& t : *list)
      out += fmt::format("  {:<8} {:<20} {}{}\n", t["dtype"].get<std::string>(), to_string(t["shape"].get<Shape>()),
                         one_line(t["name"].get<std::string>(), 1024),
                         t.contains("scale") ? ", scales: " + t["scale"].get<std::string>() : "");
  return out;
}

}  // namespace

Result<Json> describe_path(const fs::path& path, bool with_tensors) {
  std::error_code ec;
  const bool pipeline = fs::exists(path / "model_index.json", ec) || path.filename() == "model_index.json";
  DQ_TRY(Json out, pipeline ? describe_pipeline(path, with_tensors) : describe_single(path, with_tensors));
  out["path"] = path.string();
  uint64_t parameters = 0, bytes = 0;
  for (const Json& c : out["components"]) {
    parameters += c["parameters"].get<uint64_t>();
    bytes += c["bytes"].get<uint64_t>();
  }
  out["parameters"] = parameters;
  out["bytes"] = bytes;
  return out;
}

std::string description_text(const Json& d) {
  std::string out = fmt::format("{}: {}, {} parameters, {}\n", one_line(d["path"].get<std::string>(), 4096),
                                one_line(d["description"].get<std::string>()),
                                count_text(d["parameters"].get<uint64_t>()), format_bytes(d["bytes"].get<uint64_t>()));
  for (const Json& c : d["components"]) out += component_text(c);
  for (const char* key : {"tokenizer", "pe_tokenizer"})
    if (d.contains(key)) out += fmt::format("{}: {}\n", key, one_line(d[key].get<std::string>(), 4096));
  if (d.contains("scheduler")) {
    std::string fields;
    for (const auto& [key, value] : d["scheduler"].items())
      if (!key.empty() && key[0] != '_')
        fields += (fields.empty() ? "" : ", ") + one_line(key, 60) + " " + one_line(dump_json(value), 60);
    out += fmt::format("scheduler: {}\n  {}\n", one_line(class_of_config(d["scheduler"])), fields);
  }
  return out;
}

}  // namespace danqing
