#include "bench/outline.h"

#include <unistd.h>

#include <cstdlib>

#include "base/file.h"
#include "base/try.h"
#include "bench/presets.h"
#include "checkpoint/tensor_writer.h"
#include "danqing/engine.h"

namespace danqing::app {
namespace {

namespace fs = std::filesystem;

/// Header and length of a safetensors file; the values are a hole.
Result<void> write_outline(const fs::path& file, const std::vector<TensorSpec>& specs) {
  std::vector<OutputTensor> tensors;
  for (const TensorSpec& t : specs) tensors.push_back({t.name, DType::bf16, t.shape});
  DQ_TRY(const TensorLayout layout, layout_tensors(TensorSource::Format::safetensors, tensors, {}));
  DQ_CHECK(write_file(file, layout.header));
  std::error_code ec;
  fs::resize_file(file, layout.file_bytes, ec);
  if (ec) return fail(ErrorCode::failed, "[plan] {}: {}", file.string(), ec.message());
  return {};
}

}  // namespace

Result<std::unique_ptr<OutlineModel>> OutlineModel::create(const std::string& config) {
  DQ_TRY(const auto configs, load_configs(config));
  DQ_TRY(const fs::path built_in, default_model());
  std::error_code ec;
  std::string pattern = (fs::temp_directory_path(ec) / "danqing-plan-XXXXXX").string();
  if (ec || !::mkdtemp(pattern.data()))
    return fail(ErrorCode::failed, "[plan] no temporary directory can be made (TMPDIR names another place)");
  std::unique_ptr<OutlineModel> model(new OutlineModel());
  model->path_ = pattern;
  const auto transformer = configs.find("transformer");
  const bool z_image =
      transformer != configs.end() && transformer->second.value("_class_name", "") == "ZImageTransformer2DModel";
  Json index{{"_class_name", z_image ? "ZImagePipeline" : "ErnieImagePipeline"}};
  std::vector<std::string> tokenizers{"tokenizer"};
  if (configs.contains("pe")) tokenizers.push_back("pe_tokenizer");
  for (const std::string& t : tokenizers) {
    index[t] = {"transformers", "Tokenizer"};
    fs::create_directory_symlink(fs::absolute(built_in, ec) / t, model->path_ / t, ec);
    if (ec) return fail(ErrorCode::failed, "[plan] {}: {}", (model->path_ / t).string(), ec.message());
  }
  for (const auto& [role, json] : configs) {
    DQ_TRY(const auto specs, specs_of(role, json));
    index[role] = {"diffusers", json.value("_class_name", "Model")};
    fs::create_directory(model->path_ / role, ec);
    DQ_CHECK(write_file(model->path_ / role / "config.json", dump_json(json)));
    DQ_CHECK(write_outline(model->path_ / role / "model.safetensors", specs));
  }
  DQ_CHECK(write_file(model->path_ / "model_index.json", dump_json(index)));
  return model;
}

OutlineModel::~OutlineModel() {
  std::error_code ec;
  if (!path_.empty()) fs::remove_all(path_, ec);
}

}  // namespace danqing::app
