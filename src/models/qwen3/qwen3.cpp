#include "models/qwen3/qwen3.h"

#include "base/try.h"

namespace danqing::qwen3 {

const NameMap& name_map() {
  static const NameMap map{
      .prefixes = {"model.", "", "text_encoder.", "text_encoders.qwen3_4b.transformer.model.",
                   "qwen3_4b.transformer.model.", "language_model."},
      .aliases = {},
      .ignored = {"lm_head.", "logit_scale"},
  };
  return map;
}

Result<mistral3::Architecture> architecture_of(const ComponentFiles& files) {
  if (!files.config && !files.source)
    return bad_input("[text encoder] {}: expected a config.json or a weights file, got neither", files.path.string());
  DQ_TRY(Config config, files.config ? parse_config(*files.config, (files.path / "config.json").string())
                                     : infer_config(*files.source));
  return mistral3::Architecture{std::move(config), name_map()};
}

Result<std::unique_ptr<TextEncoder>> load_text_encoder(std::shared_ptr<Device> device, const ComponentFiles& files,
                                                       const WeightPolicy& policy, const LoadProgress& progress) {
  DQ_TRY(const mistral3::Architecture architecture, architecture_of(files));
  return TextEncoder::load_as(std::move(device), files, architecture, false, policy, progress);
}

}  // namespace danqing::qwen3
