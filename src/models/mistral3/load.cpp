#include "models/mistral3/load.h"

#include <fmt/format.h>

#include "base/try.h"

namespace danqing::mistral3 {

Result<Architecture> architecture_of(const ComponentFiles& files) {
  if (!files.config && !files.source)
    return bad_input("[language model] {}: expected a config.json or a weights file, got neither", files.path.string());
  DQ_TRY(Config config, files.config ? Config::parse(*files.config, (files.path / "config.json").string())
                                     : Config::infer(*files.source));
  return Architecture{std::move(config), name_map()};
}

Result<Stack> load_stack(std::shared_ptr<Device> device, const ComponentFiles& files, const Architecture& architecture,
                         Part part, const WeightPolicy& policy, const LoadProgress& progress) {
  const std::string what = part == Part::language ? "prompt enhancer" : "text encoder";
  if (!files.source) return bad_input("[{}] {}: expected a weights file, got none", what, files.path.string());
  Stack s;
  s.config = architecture.config;
  s.rope = rope_table(s.config);
  const int64_t layers = s.config.num_hidden_layers - (part == Part::features ? 1 : 0);
  const auto specs = tensor_table(s.config, layers, part != Part::features, part == Part::language);
  NameMap names = architecture.names;
  if (part == Part::features) {
    names.ignored.push_back("norm.");
    names.ignored.push_back(fmt::format("layers.{}.", layers));
  }
  DQ_TRY(const BoundTensors bound, danqing::bind(files.source, specs, names, what));
  s.exact = policy.matrix.value_or(bound.tensors.front().stored->dtype) == DType::f32;
  DQ_TRY(s.weights, Weights::load(std::move(device), bound, policy, progress));
  return s;
}

}  // namespace danqing::mistral3
