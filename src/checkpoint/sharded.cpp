// A directory's weights: which file is meant, and several files under one index.
#include <algorithm>
#include <set>

#include "base/json.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/file_content.h"
#include "checkpoint/source_builder.h"

namespace danqing {
namespace {

namespace fs = std::filesystem;

bool ends_with(std::string_view s, std::string_view tail) {
  return s.size() >= tail.size() && s.substr(s.size() - tail.size()) == tail;
}

// "model-00001-of-00003.safetensors" and "model.fp16-00001-of-00003.safetensors"
bool is_shard_name(std::string_view name) {
  const std::string stem = fs::path(name).stem().string();
  const size_t of = stem.rfind("-of-");
  const auto digits = [](std::string_view s) {
    return !s.empty() && std::all_of(s.begin(), s.end(), [](char c) { return c >= '0' && c <= '9'; });
  };
  if (of == std::string::npos || !digits(std::string_view(stem).substr(of + 4))) return false;
  const size_t dash = stem.rfind('-', of - 1);
  return of > 0 && dash != std::string::npos && digits(std::string_view(stem).substr(dash + 1, of - dash - 1));
}

std::string list(const std::vector<std::string>& names) {
  std::string out;
  for (size_t i = 0; i < names.size() && i < 4; ++i) out += (i ? ", " : "") + one_line(names[i], 80);
  return names.size() > 4 ? out + fmt::format(" and {} more", names.size() - 4) : out;
}

// What of `names` is not a variant ("model.fp16.safetensors") of another ("model.safetensors").
std::vector<std::string> without_variants(const std::vector<std::string>& names, std::string_view suffix) {
  std::vector<std::string> out;
  for (const std::string& n : names) {
    const std::string stem = n.substr(0, n.size() - suffix.size());
    const bool variant = std::any_of(names.begin(), names.end(), [&](const std::string& other) {
      const std::string base = other.substr(0, other.size() - suffix.size());
      return base.size() < stem.size() && stem.substr(0, base.size()) == base && stem[base.size()] == '.';
    });
    if (!variant) out.push_back(n);
  }
  return out;
}

}  // namespace

Result<fs::path> choose_weights(const fs::path& directory) {
  std::vector<std::string> indexes, old_variants, plain, shards, ggufs, pickles;
  std::error_code ec;
  for (fs::directory_iterator it(directory, ec), end; !ec && it != end; it.increment(ec)) {
    std::error_code ignored;
    if (it->is_directory(ignored)) continue;
    const std::string name = it->path().filename().string();
    if (ends_with(name, ".safetensors.index.json"))
      indexes.push_back(name);
    else if (name.find(".safetensors.index.") != std::string::npos && ends_with(name, ".json"))
      old_variants.push_back(name);
    else if (ends_with(name, ".safetensors"))
      (is_shard_name(name) ? shards : plain).push_back(name);
    else if (ends_with(name, ".gguf"))
      ggufs.push_back(name);
    else if (ends_with(name, ".bin") || ends_with(name, ".ckpt") || ends_with(name, ".pt") || ends_with(name, ".pth"))
      pickles.push_back(name);
  }
  const std::string where = directory.string();
  if (ec) return bad_input("[checkpoint] {}: cannot be listed ({})", where, ec.message());
  for (auto* names : {&indexes, &plain, &ggufs, &shards}) std::sort(names->begin(), names->end());

  // The names that diffusers and transformers write come first, whatever else lies beside them.
  for (std::string_view name : {"diffusion_pytorch_model.safetensors.index.json", "diffusion_pytorch_model.safetensors",
                                "model.safetensors.index.json", "model.safetensors"})
    for (const auto* names : {&indexes, &plain})
      if (std::find(names->begin(), names->end(), name) != names->end()) return directory / name;

  indexes = without_variants(indexes, ".safetensors.index.json");
  plain = without_variants(plain, ".safetensors");
  if (indexes.size() == 1) return directory / indexes[0];
  std::vector<std::string> all = indexes.empty() ? old_variants : indexes;  // "X.safetensors.index.fp16.json"
  all.insert(all.end(), plain.begin(), plain.end());
  all.insert(all.end(), ggufs.begin(), ggufs.end());
  if (all.size() == 1) return directory / all[0];
  if (all.size() > 1)
    return bad_input("[checkpoint] {}: expected one weights file or an index, got {}; name the file itself", where,
                     list(all));
  if (!shards.empty())
    return bad_input(
        "[checkpoint] {}: expected an index beside the shards, got only {}; download the .safetensors.index.json too",
        where, list(shards));
  if (!pickles.empty())
    return bad_input(
        "[checkpoint] {}: expected safetensors or GGUF weights, got only {}; get or convert them to safetensors", where,
        list(pickles));
  return bad_input("[checkpoint] {}: expected a .safetensors or .gguf file, got none", where);
}

Result<std::shared_ptr<const TensorSource>> open_sharded(const fs::path& index) {
  const std::string where = index.string();
  DQ_TRY(const Json json, read_json_unique(index));
  DQ_TRY(const JsonObject top, JsonObject::of(json, where));
  DQ_TRY(const JsonObject weight_map, top.object("weight_map"));
  std::set<std::string> names;
  for (const auto& [tensor, file] : weight_map.json().items()) {
    if (!file.is_string())
      return bad_input("[checkpoint] {}: tensor '{}' expected a file name, got {}", where, one_line(tensor),
                       one_line(dump_json(file), 60));
    const auto& name = file.get_ref<const std::string&>();
    if (name.empty() || name == "." || name == ".." || name.find_first_of(std::string("/\\\0", 3)) != std::string::npos)
      return bad_input("[checkpoint] {}: tensor '{}' expected a file beside the index, got '{}'", where,
                       one_line(tensor), one_line(name));
    names.insert(name);
  }
  if (names.empty()) return bad_input("[checkpoint] {}: expected a weight_map with entries, got an empty one", where);

  SourceBuilder builder(index, TensorSource::Format::safetensors);
  for (const std::string& name : names) {
    const fs::path path = index.parent_path() / name;
    std::error_code ec;
    if (!fs::exists(path, ec))
      return bad_input("[checkpoint] {}: expected the shard {}, got no such file; download it", where, one_line(name));
    DQ_TRY(std::shared_ptr<const MappedFile> map, MappedFile::open(path));
    const FileContent content = file_content(map->bytes());
    if (content != FileContent::safetensors && content != FileContent::unknown)
      return bad_input("[checkpoint] {}: expected a safetensors file, got {}", path.string(), describe(content));
    const uint32_t file = builder.add_file(map);
    DQ_CHECK(read_safetensors(*map, file, builder));
  }
  DQ_TRY(std::shared_ptr<const TensorSource> source, builder.finish());

  for (const TensorInfo& t : source->tensors()) {
    const auto it = weight_map.json().find(t.name);
    const fs::path& file = source->files()[t.file];
    if (it == weight_map.json().end())
      return bad_input("[checkpoint] {}: expected every tensor in the index {}, got '{}' that it does not name",
                       file.string(), where, one_line(t.name));
    if (it->get_ref<const std::string&>() != file.filename().string())
      return bad_input("[checkpoint] {}: tensor '{}' expected in {}, got it in {}", where, one_line(t.name),
                       one_line(it->get_ref<const std::string&>()), file.filename().string());
  }
  for (const auto& [tensor, file] : weight_map.json().items())
    if (!source->find(tensor))
      return bad_input("[checkpoint] {}: tensor '{}' expected in {}, got no such tensor there", where, one_line(tensor),
                       one_line(file.get_ref<const std::string&>()));
  return source;
}

}  // namespace danqing
