// What lies where in the tree, and which group of cases each file belongs to.
#include <algorithm>
#include <set>

#include "base/try.h"
#include "verify/stages.h"

namespace danqing::app::verify {
namespace {

namespace fs = std::filesystem;

bool present(const fs::path& p) {
  std::error_code ec;
  return fs::exists(p, ec);
}

/// Names of the directory's files without the last extension; sorted.
std::set<std::string> stems(const fs::path& directory, std::initializer_list<std::string_view> extensions) {
  std::set<std::string> out;
  std::error_code ec;
  for (const auto& entry : fs::directory_iterator(directory, ec))
    if (entry.is_regular_file(ec) &&
        std::find(extensions.begin(), extensions.end(), entry.path().extension().string()) != extensions.end())
      out.insert(entry.path().stem().string());
  return out;
}

void skip_file(const Model& m, const std::string& file, const std::string& why) {
  const auto g = m.suite.golden(m.stem(file));
  m.suite.skip(m.stage(file), "all", g, g->keys(), why);
}

void skip_pictures(const Model& m, const std::string& why) {
  for (const std::string& name : stems(m.golden_directory() / "png", {".png"})) {
    const fs::path file = m.golden_directory() / "png" / (name + ".png");
    if (!m.suite.seen(file)) m.suite.skip(m.stage("png"), name, m.suite.entries(file, {"picture"}), {"picture"}, why);
  }
}

/// Every golden of a model that this build cannot run, with the reason.
void skip_model(const Model& m, const std::string& why) {
  for (const std::string& file : stems(m.golden_directory(), {".safetensors", ".json"})) {
    if (present(m.stem(file).concat(".safetensors"))) {
      skip_file(m, file, why);
      continue;
    }
    const fs::path json_file = m.stem(file).concat(".json");
    const auto json = read_json(json_file);
    std::vector<std::string> entries;
    if (json && json->is_object())
      for (const auto& [key, value] : json->items()) entries.push_back(key);
    m.suite.skip(m.stage(file), "all", m.suite.entries(json_file, entries), entries, why);
  }
  skip_pictures(m, why);
}

void add_file(const Model& m, const std::string& file) {
  const Options& o = m.suite.options;
  const bool bf16 = file.ends_with("_bf16");
  if ((bf16 && !o.bf16) || (!bf16 && !o.f32 && (file.starts_with("text_") || file.starts_with("dit_"))))
    return skip_file(m, file, "not asked for: --dtype");
  if (file == "tokens") return m.is_z_image() ? add_z_image_tokens(m) : add_tokens(m);
  if (file == "text_f32" || file == "text_bf16") return add_text(m, file);
  if (file == "text_llama4_scale") return add_query_scale(m);
  if (m.is_z_image() && (file == "dit_f32" || file == "dit_bf16")) return add_z_image_transformer(m, file);
  if (file == "dit_f32") return add_transformer(m);
  if (file == "dit_bf16weights_f32math") return add_transformer_bf16_weights(m);
  if (file == "dit_bf16") return add_transformer_bf16(m);
  if (file == "scheduler") return add_scheduler(m);
  if (file == "init_latents") return add_init_latents(m);
  if (file == "vae") return add_vae(m);
  if (file == "pe") return add_enhancer(m);
  if (file == "lora_out") return add_adapters(m);
  if (file.starts_with("lora")) return add_adapter_file(m, file);
  skip_file(m, file, "this build has no check for a file of this name");
}

bool is_run(const std::string& file) {
  return file == "img2img" || (file.starts_with("run_") && (file.ends_with("_f32") || file.ends_with("_bf16")));
}

void add_model(Model m) {
  const fs::path index = m.directory / "model_index.json";
  const auto json = read_json(index);
  std::string& kind = m.pipeline;
  if (json && json->is_object() && json->contains("_class_name") && (*json)["_class_name"].is_string())
    kind = (*json)["_class_name"].get<std::string>();
  if (!json) return m.suite.fail(m.stage("model_index.json"), "file", json.error().message);
  if (kind != "ErnieImagePipeline" && !m.is_z_image())
    return skip_model(m, fmt::format("the pipeline '{}' is not in this build", kind));
  // In the order of the pipeline; f32 runs before bf16 ones, so that only one engine is loaded at a time.
  static constexpr std::string_view kOrder[] = {"tokens",
                                                "text_f32",
                                                "text_bf16",
                                                "text_llama4_scale",
                                                "dit_f32",
                                                "dit_bf16weights_f32math",
                                                "dit_bf16",
                                                "scheduler",
                                                "init_latents",
                                                "vae",
                                                "pe"};
  std::set<std::string> files = stems(m.golden_directory(), {".safetensors", ".json"});
  const bool errors = files.erase("errors") > 0;
  for (const std::string_view file : kOrder)
    if (files.erase(std::string(file))) add_file(m, std::string(file));
  std::vector<std::string> runs;
  for (const char* type : {"_f32", "_bf16"})
    for (const std::string& file : files)
      if (is_run(file) && (file == "img2img" ? std::string_view("_f32") : std::string_view(file)).ends_with(type)) {
        const bool asked = std::string_view(type) == "_f32" ? m.suite.options.f32 : m.suite.options.bf16;
        if (asked)
          runs.push_back(file);
        else
          skip_file(m, file, "not asked for: --dtype");
      }
  add_runs(m, runs);
  if (errors) add_errors(m);
  for (const std::string& file : files)
    if (!is_run(file)) add_file(m, file);
  skip_pictures(m, "no golden of this name belongs to it");
}

}  // namespace

Result<void> add_tree(Suite& suite) {
  const fs::path& tree = suite.options.tree;
  std::error_code ec;
  if (!fs::is_directory(tree, ec)) return bad_input("[verify] {}: no such directory", tree.string());
  if (present(tree / "model_index.json") || present(tree / "golden")) {
    if (!present(tree / "golden"))
      return bad_input("[verify] {}: holds nothing to verify: this model has no golden/ beside its components",
                       tree.string());
    add_model({suite, tree, ""});
  }
  std::vector<fs::path> models;
  for (const auto& entry : fs::directory_iterator(tree, ec))
    if (entry.is_directory(ec) && entry.path().filename() != "tokenizers" && present(entry.path() / "golden"))
      models.push_back(entry.path());
  std::sort(models.begin(), models.end());
  if (present(tree / "rng/rng.safetensors") || present(tree / "rng/rng.json")) add_random(suite, tree / "rng/rng");
  if (present(tree / "units/units.safetensors") || present(tree / "units/units.json"))
    add_units(suite, tree / "units/units");
  if (present(tree / "tokenizers/golden")) add_tokenizers(suite, tree / "tokenizers/golden");
  for (const fs::path& m : models) add_model({suite, m, ""});
  if (present(tree / "gguf")) add_gguf(suite, tree / "gguf");
  if (suite.empty())
    return bad_input(
        "[verify] {}: holds nothing to verify: expected model directories with golden/ inside, or rng/, units/, "
        "tokenizers/golden/ or gguf/",
        tree.string());
  return {};
}

}  // namespace danqing::app::verify
