// LoRA adapters on the denoiser: every adapter file at every weight that lora_out has outputs for.
#include <map>

#include "base/try.h"
#include "models/ernie_image/transformer.h"
#include "models/z_image/transformer.h"
#include "pipeline/family.h"
#include "verify/stages.h"

namespace danqing::app::verify {
namespace {

/// Adapter file and weight behind an output: "scale0.6.out" is lora.safetensors at 0.6, "TAG.scale1.0.out" lora_TAG.
struct Output {
  std::string file;  ///< empty: without an adapter
  float weight = 0;
};
std::optional<Output> output_of(const std::string& key) {
  if (key == "base.out") return Output{};
  const size_t at = key.find("scale");
  if (at == std::string::npos || (at > 0 && key[at - 1] != '.')) return {};
  Output o{at == 0 ? "lora" : "lora_" + key.substr(0, at - 1), std::strtof(key.c_str() + at + 5, nullptr)};
  return o;
}

/// The case of dit_f32 that the JSON names in quotes.
std::string case_of(const Golden& g) {
  const Json how = g.json().value("how", Json());
  const std::string text = how.is_string() ? how.get<std::string>() : "";
  const size_t at = text.find("case '"), end = at == std::string::npos ? at : text.find('\'', at + 6);
  return end == std::string::npos ? "" : text.substr(at + 6, end - at - 6);
}

Result<Tensor> forward(const Model& m, Golden& dit, const std::string& name, const ComponentFiles& files) {
  const WeightPolicy policy = weight_policy(files, ComputeType::f32);
  if (!m.is_z_image()) {
    DQ_TRY(const TransformerInputs in, transformer_inputs(dit, name));
    DQ_TRY(const auto model, ernie_image::Transformer::load(m.suite.device, files, policy));
    return model->forward(in.latents, in.text, in.timesteps);
  }
  DQ_TRY(const ZImageInputs in, z_image_inputs(dit, name));
  DQ_TRY(const auto model, z_image::Transformer::load(m.suite.device, files, policy));
  DQ_TRY(std::vector<Tensor> out, model->forward(in.latents, in.captions, in.times));
  return out.at(0);
}

Result<void> check(const Model& m, Golden& g, Golden& dit, const std::string& key, const std::string& file,
                   Checker& c) {
  const auto o = output_of(key);
  DQ_TRY(ComponentFiles files, m.component("transformer"));
  if (!o->file.empty()) {
    DQ_TRY(std::shared_ptr<const Adapter> adapter, Adapter::open(m.stem(file + ".safetensors")));
    files.adapters = {{std::move(adapter), o->weight}};
  }
  DQ_TRY(const Tensor out, forward(m, dit, case_of(g), files));
  c.compare(file.empty() ? key : file + " " + key, g, key, out, f32_tolerance(page::kTransformer, 0, m.suite.factors.matmul));
  return {};
}

}  // namespace

void add_adapters(const Model& m) {
  const auto g = m.golden("lora_out"), dit = m.golden("dit_f32");
  for (const std::string& key : g->keys()) {
    const auto o = output_of(key);
    if (!o) {
      m.suite.skip(m.stage("lora_out"), key, g, {key}, "this build knows no adapter of that name");
      continue;
    }
    std::vector<std::string> files{o->file};
    // The same adapter under another prefix gives the same outputs.
    if (o->file == "lora" && m.has("lora_diffusion_model_prefix")) files.push_back("lora_diffusion_model_prefix");
    for (const std::string& file : files)
      m.suite.add(m.stage("lora_out"), (file.empty() ? "" : file + " ") + key, g, {key},
                  [m, g, dit, key, file](Checker& c) { return check(m, *g, *dit, key, file, c); });
  }
}

void add_adapter_file(const Model& m, const std::string& file) {
  const auto g = m.golden(file);
  m.suite.add(m.stage(file), "modules", g, g->keys(), [m, g, file](Checker& c) -> Result<void> {
    DQ_TRY(const auto adapter, Adapter::open(m.stem(file + ".safetensors")));
    for (const std::string& key : g->keys()) g->mark(key, Mark::input);
    std::string got, wanted;
    for (const Adapter::Module& module : adapter->modules()) got += module.name + "\n";
    for (const Json& name : g->json().value("modules", Json::array()))
      if (name.is_string()) wanted += name.get<std::string>() + "\n";
    if (!wanted.empty()) c.same("modules", wanted, got);
    return {};
  });
}

}  // namespace danqing::app::verify
