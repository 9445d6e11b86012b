#include "verify/model.h"

#include "base/try.h"

namespace danqing::app::verify {

namespace fs = std::filesystem;

bool Model::has(const std::string& name) const {
  std::error_code ec;
  return fs::exists(golden_directory() / (name + ".safetensors"), ec) ||
         fs::exists(golden_directory() / (name + ".json"), ec);
}

std::string Model::stage(const std::string& name) const {
  const std::string model = suite.label(directory);
  return model == "." ? name : model + "/" + name;
}

std::shared_ptr<Golden> Model::golden(const std::string& name) const {
  return has(name) ? suite.golden(stem(name)) : Golden::of_entries(stage(name), {});
}

ModelPaths Model::paths(bool bf16) const {
  ModelPaths p{.model = directory};
  std::error_code ec;
  if (bf16 && fs::is_directory(directory / "transformer_bf16", ec)) p.transformer = directory / "transformer_bf16";
  return p;
}

Result<ComponentFiles> Model::component(const std::string& role, bool bf16) const {
  DQ_TRY(const Checkpoint checkpoint, open_checkpoint(paths(bf16)));
  const ComponentFiles* files = checkpoint.find(role);
  if (!files) return bad_input("[verify] {}: expected a component '{}', got none", directory.string(), role);
  return *files;
}

Result<std::unique_ptr<Engine>> Model::open_engine(bool bf16) const {
  EngineOptions o;
  o.paths = paths(bf16);
  o.device = suite.options.device;
  o.cpu = suite.options.cpu;
  o.compute_type = bf16 ? ComputeType::bf16 : ComputeType::f32;
  return Engine::open(o);
}

}  // namespace danqing::app::verify
