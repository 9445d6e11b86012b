#include "pipeline/defaults.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "base/json.h"
#include "base/try.h"

namespace danqing {
namespace {

constexpr int kMaxDefaultSide = 16384;
constexpr int kMaxDefaultSteps = 1000;

std::string lower(std::string s) {
  std::transform(s.begin(), s.end(), s.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return s;
}

std::string model_name(const Checkpoint& checkpoint) {
  std::filesystem::path p = checkpoint.root;
  if (p.empty())
    if (const ComponentFiles* t = checkpoint.find("transformer")) p = t->path;
  p = std::filesystem::absolute(p).lexically_normal();
  if (p.filename().empty()) p = p.parent_path();
  return std::filesystem::is_directory(p) ? p.filename().string() : p.stem().string();
}

ComponentInfo describe(const ComponentFiles& files) {
  ComponentInfo c{files.role, files.class_name, "", 0, 0};
  std::map<DType, uint64_t> bytes;
  for (const TensorInfo& t : files.source->tensors()) {
    c.parameters += static_cast<uint64_t>(element_count(t.shape));
    c.bytes += t.bytes;
    bytes[t.dtype] += t.bytes;
  }
  std::vector<std::pair<uint64_t, DType>> order;
  for (const auto& [dtype, n] : bytes) order.emplace_back(n, dtype);
  std::sort(order.rbegin(), order.rend());
  for (const auto& [n, dtype] : order) c.dtypes += (c.dtypes.empty() ? "" : " + ") + std::string(name(dtype));
  return c;
}

Result<void> read_defaults_file(const std::filesystem::path& path, ModelDefaults& d) {
  DQ_TRY(const Json json, read_json(path));
  DQ_TRY(const JsonObject o, JsonObject::of(json, path.string()));
  DQ_TRY(const int64_t width, o.integer_in("width", 16, kMaxDefaultSide, d.width));
  DQ_TRY(const int64_t height, o.integer_in("height", 16, kMaxDefaultSide, d.height));
  DQ_TRY(const int64_t steps, o.integer_in("num_inference_steps", 0, kMaxDefaultSteps, d.num_inference_steps));
  DQ_TRY(const double guidance, o.number("guidance_scale", d.guidance_scale));
  DQ_TRY(d.prompt_enhancer, o.boolean("prompt_enhancer", d.prompt_enhancer));
  d.width = static_cast<int>(width);
  d.height = static_cast<int>(height);
  d.num_inference_steps = static_cast<int>(steps);
  d.guidance_scale = static_cast<float>(guidance);
  d.suggested_sizes.clear();
  d.source = "danqing.json";
  return {};
}

}  // namespace

bool named_turbo(const Checkpoint& checkpoint) {
  return lower(model_name(checkpoint)).find("turbo") != std::string::npos;
}

Result<ModelInfo> describe_model(const Checkpoint& checkpoint, const FlowMatchConfig& scheduler,
                                 const ModelDefaults& kind) {
  ModelInfo info;
  info.name = model_name(checkpoint);
  info.pipeline_class = checkpoint.pipeline_class;
  for (const auto& [role, files] : checkpoint.components) info.components.push_back(describe(files));
  info.has_prompt_enhancer = checkpoint.find("pe") != nullptr;

  ModelDefaults& d = info.defaults;
  d = kind;
  const std::filesystem::path file = checkpoint.root / "danqing.json";
  std::error_code ignored;
  if (!checkpoint.root.empty() && std::filesystem::is_regular_file(file, ignored))
    DQ_CHECK(read_defaults_file(file, d));
  d.shift = static_cast<float>(scheduler.shift);
  d.source += checkpoint.scheduler ? ", scheduler_config.json" : ", no scheduler_config.json";
  return info;
}

}  // namespace danqing
