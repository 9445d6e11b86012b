// Which calls are refused and which are accepted.
#include "base/try.h"
#include "base/units.h"
#include "verify/stages.h"

namespace danqing::app::verify {
namespace {

using SharedEngine = Lazy<std::unique_ptr<Engine>>;

/// The number in "list of 3", as the file describes lists; empty for other words.
std::optional<int> list_length(const Json& v) {
  if (!v.is_string()) return {};
  const std::string text = v.get<std::string>();
  if (!text.starts_with("list of ")) return {};
  return std::clamp(std::atoi(text.c_str() + 8), 0, 64);
}

struct Verdict {
  bool accepted = false;
  std::string message;
  Shape shape;          ///< of the final latents
  std::string why_not;  ///< set: this build's calls cannot say it
};

/// The reference's base call (prompt "cat", 64x64, 1 step, no guidance, no enhancer) with the case's changes.
struct Description {
  GenerateRequest request;
  bool zero_is_default = false;  ///< a size of 0 means what it means in a request
  std::string why_not;
};

Description describe(const Json& call, bool z_image) {
  Description d;
  GenerateRequest& r = d.request;
  r.prompts = {"cat"};
  r.width = r.height = 64;
  r.num_inference_steps = 1;
  r.guidance_scale = z_image ? 0.0f : 1.0f;
  d.zero_is_default = z_image;
  r.enhancer = EnhancerMode::off;
  r.seeds = {0};
  if (!call.is_object()) d.why_not = "its call is not described";
  for (const auto& [key, value] : call.items()) {
    const auto list = list_length(value);
    if ((key == "width" || key == "height") && value.is_number_integer()) {
      (key == "width" ? r.width : r.height) = value.get<int>();
    } else if (key == "num_inference_steps" && value.is_number_integer()) {
      r.num_inference_steps = value.get<int>();
    } else if (key == "guidance_scale" && value.is_number()) {
      r.guidance_scale = value.get<float>();
    } else if (key == "num_images_per_prompt" && value.is_number_integer()) {
      r.images_per_prompt = value.get<int>();
    } else if (key == "prompt" || key == "negative_prompt") {
      std::vector<std::string>& texts = key == "prompt" ? r.prompts : r.negative_prompts;
      texts.clear();
      if (list)
        texts.assign(static_cast<size_t>(*list), "cat");
      else if (value.is_string())
        texts = {value.get<std::string>()};
    } else if (key == "latents" && z_image) {
      r.latents.assign(1, 0.0f);  // a tensor of another shape
    } else if (key == "generator" && list && *list != 1) {
      r.seeds.assign(static_cast<size_t>(*list), 0);
    } else {
      d.why_not = "no such argument here: " + key;
    }
  }
  return d;
}

Result<Verdict> judge(Engine& engine, const Description& d) {
  Verdict v;
  // 0 means "the default" in a request; an explicit size goes the way that the command line's goes.
  const bool plain = d.zero_is_default && (d.request.width == 0 || d.request.height == 0);
  if (const auto size = parse_size(fmt::format("{}x{}", d.request.width, d.request.height)); !size && !plain) {
    v.message = size.error().message;
    return v;
  }
  RunControl control;
  control.dump = [&](const std::string& name, const std::vector<int64_t>& shape, const std::vector<float>&) {
    if (name == "final_latents") v.shape = shape;
  };
  const auto result = engine.generate(d.request, control);
  v.accepted = result.ok();
  if (!result) {
    v.message = result.error().message;
    if (result.error().code != ErrorCode::usage) return result.error();  // a failure is no verdict
  }
  return v;
}

}  // namespace

void add_errors(const Model& m) {
  const std::filesystem::path file = m.golden_directory() / "errors.json";
  const auto json = read_json(file);
  const std::string stage = m.stage("errors");
  if (!json) return m.suite.fail(stage, "file", json.error().message);
  if (!json->is_object()) return m.suite.fail(stage, "file", file.string() + ": expected a JSON object");
  std::vector<std::string> names;
  for (const auto& [name, entry] : json->items()) names.push_back(name);
  const auto g = m.suite.entries(file, names);
  const auto engine = std::make_shared<SharedEngine>([m] { return m.open_engine(false); });
  for (const auto& [key, entry] : json->items()) {
    const std::string name = key;
    if (!entry.is_object() || !entry.contains("result") || !entry["result"].is_string() || !entry.contains("call")) {
      m.suite.fail(stage, name, "expected an object with call and result");
      continue;
    }
    const Description d = describe(entry["call"], m.is_z_image());
    if (!d.why_not.empty()) {
      m.suite.skip(stage, name, g, {name}, d.why_not);
      continue;
    }
    m.suite.add(stage, name, g, {name}, [g, engine, name, d, entry = entry](Checker& c) -> Result<void> {
      DQ_TRY(auto* e, engine->get());
      DQ_TRY(const Verdict v, judge(**e, d));
      const std::string expected = entry["result"].get<std::string>();
      const bool ok = (expected == "ok") == v.accepted;
      c.require(name, ok,
                v.accepted ? fmt::format("expected to be refused ({}), was accepted", expected)
                           : "expected to be accepted, was refused: " + v.message);
      if (ok && v.accepted && entry.contains("shape") && entry["shape"].is_array()) {
        Shape shape;
        for (const Json& n : entry["shape"]) shape.push_back(n.is_number_integer() ? n.get<int64_t>() : -1);
        c.require(name, shape == v.shape,
                  fmt::format("expected latents {}, got {}", to_string(shape), to_string(v.shape)));
      }
      g->mark(name, ok ? Mark::compared : Mark::failed);
      return {};
    });
  }
}

}  // namespace danqing::app::verify
