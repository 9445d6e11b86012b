#include "bench/outline.h"

#include <unistd.h>

#include <cstdlib>

#include "base/file.h"
#include "base/try.h"
#include "bench/presets.h"
#include "danqing/engine.h"

namespace danqing::app {
namespace {

namespace fs = std::filesystem;

/// Header and length of a safetensors file; the values are a hole.
Result<void> write_outline(const fs::path& file, const std::vector<TensorSpec>& specs) {
  Json header = Json::object();
  uint64_t offset = 0;
  for (const TensorSpec& s : specs) {
    const uint64_t bytes = 2 * static_cast<uint64_t>(element_count(s.shape));
    header[s.name] = {{"dtype", "BF16"}, {"shape", s.shape}, {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text = dump_json(header);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t size = text.size();
  std::string head(8, '\0');
  for (int i = 0; i < 8; ++i) head[static_cast<size_t>(i)] = static_cast<char>(size >> 8 * i & 0xff);
  DQ_CHECK(write_file(file, head + text));
  std::error_code ec;
  fs::resize_file(file, 8 + size + offset, ec);
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
  Json index{{"_class_name", z_image ? "ZImagePipeline" : "ErnieImagePipeline"},
             {"tokenizer", {"transformers", "Tokenizer"}}};
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
