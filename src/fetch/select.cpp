#include "fetch/select.h"

#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "base/text.h"
#include "base/try.h"

namespace danqing::fetch {
namespace {

bool ends_with(std::string_view s, std::string_view tail) {
  return s.size() >= tail.size() && s.substr(s.size() - tail.size()) == tail;
}
std::string lower(std::string_view s) {
  std::string out(s);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}
std::string_view name_of(std::string_view path) { return path.substr(path.rfind('/') + 1); }
std::string folder_of(std::string_view path) {
  const size_t slash = path.rfind('/');
  return std::string(slash == std::string_view::npos ? std::string_view() : path.substr(0, slash));
}
std::string component_of(std::string_view path) {
  const size_t slash = path.find('/');
  return std::string(slash == std::string_view::npos ? std::string_view() : path.substr(0, slash));
}

constexpr std::array kOtherWeights = {".bin",    ".pt", ".pth", ".ckpt",    ".onnx", ".onnx_data", ".msgpack", ".h5",
                                      ".tflite", ".pb", ".ot",  ".mlmodel", ".npz",  ".pkl",       ".engine",  ".xml"};
constexpr std::array kPictures = {".png", ".jpg", ".jpeg", ".webp", ".gif", ".svg", ".mp4", ".pdf", ".mp3", ".wav"};

/// Why the engine has no use for the file; empty: it has.
std::string useless(const std::string& path) {
  const std::string name = lower(name_of(path));
  for (const char* tail : kOtherWeights)
    if (ends_with(name, tail)) return "another format of weights";
  for (const char* tail : kPictures)
    if (ends_with(name, tail)) return "pictures and papers";
  if (name[0] == '.') return "of git";
  if (ends_with(name, ".py") || ends_with(name, ".ipynb") || ends_with(name, ".sh")) return "code";
  if (ends_with(name, ".index.json") && name.find(".bin.") != std::string::npos) return "another format of weights";
  for (const char* tail : {".safetensors", ".gguf", ".json", ".txt", ".jinja", ".model", ".md", ".yaml", ".yml"})
    if (ends_with(name, tail)) return "";
  return name.rfind("license", 0) == 0 || name.rfind("notice", 0) == 0 ? "" : "not read by the engine";
}

/// "model.fp16-00001-of-00002.safetensors" -> base "model", variant "fp16"; also of an index, whose variant may stand
/// behind it ("model.safetensors.index.fp16.json").
std::optional<std::pair<std::string, std::string>> variant_of(std::string_view path) {
  const std::string_view name = name_of(path);
  const size_t end = name.find(".safetensors");
  if (end == std::string_view::npos) return {};
  std::string_view stem = name.substr(0, end), tail = name.substr(end + 12);
  if (const size_t of = stem.rfind("-of-"); of != std::string_view::npos && of > 0)
    if (const size_t dash = stem.rfind('-', of - 1); dash != std::string_view::npos) stem = stem.substr(0, dash);
  const std::string_view mark = ".index.";
  if (tail.rfind(mark, 0) == 0 && ends_with(tail, ".json") && tail.size() > mark.size() + 5)
    return std::pair(std::string(stem), std::string(tail.substr(mark.size(), tail.size() - mark.size() - 5)));
  const size_t dot = stem.rfind('.');
  if (dot == std::string_view::npos || dot == 0) return std::pair(std::string(stem), std::string());
  return std::pair(std::string(stem.substr(0, dot)), std::string(stem.substr(dot + 1)));
}

Stage stage_of(const std::string& path) {
  if (!is_weights(path)) return Stage::config;
  const std::string component = component_of(path).empty() ? lower(name_of(path)) : lower(component_of(path));
  const auto has = [&](const char* word) { return component.find(word) != std::string::npos; };
  if (component == "pe" || has("prompt_enhancer")) return Stage::enhancer;
  if (has("vae") || component.rfind("ae.", 0) == 0) return Stage::vae;
  if (has("text_encoder") || has("mistral") || has("qwen") || has("ministral")) return Stage::text_encoder;
  if (has("transformer") || has("unet") || has("diffusion")) return Stage::transformer;
  return Stage::other;
}

bool any_matches(const std::vector<std::string>& patterns, const std::string& path) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& p) { return path_matches(p, path); });
}

/// Of each weight the variant that was asked for, or the plain one.
Result<void> choose_variants(std::vector<RemoteFile>& files, const std::string& wanted, std::vector<Skipped>& skipped) {
  std::map<std::string, std::set<std::string>> have;  // folder/base -> variants
  const auto key = [](const RemoteFile& f, const std::string& base) { return folder_of(f.path) + "/" + base; };
  for (const RemoteFile& f : files)
    if (const auto v = variant_of(f.path)) have[key(f, v->first)].insert(v->second);
  bool found = wanted.empty();
  std::vector<RemoteFile> kept;
  for (RemoteFile& f : files) {
    const auto v = variant_of(f.path);
    if (!v) {
      kept.push_back(std::move(f));
      continue;
    }
    const auto& variants = have[key(f, v->first)];
    const bool has_wanted = !wanted.empty() && variants.count(wanted) > 0;
    found |= has_wanted;
    // A dot in a name makes a variant only beside the plain file: "qwen2.5.safetensors" is no variant.
    const bool is_variant = variants.count("") > 0 && !v->second.empty();
    if (has_wanted ? v->second != wanted : is_variant)
      skipped.push_back(
          {f.path, has_wanted ? "the variant " + wanted + " is taken" : "a variant (--variant " + v->second + ")"});
    else
      kept.push_back(std::move(f));
  }
  if (!found)
    return usage_error("[--variant] expected a variant that the repository has, got '{}'", one_line(wanted, 40));
  files = std::move(kept);
  return {};
}

bool is_shard(std::string_view name) { return name.find("-of-") != std::string_view::npos; }

/// A folder with several weights files that are no shards holds the same weights several times.
Result<void> check_one_each(const std::vector<RemoteFile>& files) {
  std::map<std::string, std::vector<std::string>> by_folder;
  for (const RemoteFile& f : files)
    if (is_weights(f.path) && !is_shard(name_of(f.path)))
      by_folder[folder_of(f.path)].push_back(one_line(name_of(f.path), 80));
  for (const auto& [folder, names] : by_folder) {
    if (names.size() < 2) continue;
    return usage_error(
        "[pull] expected one weights file a folder, got {} in {}: {}{}; choose with --include NAME", names.size(),
        folder.empty() ? "the repository" : one_line(folder, 60),
        fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(std::min<size_t>(6, names.size())), ", "),
        names.size() > 6 ? ", ..." : "");
  }
  return {};
}

}  // namespace

bool is_weights(std::string_view path) {
  const std::string name = lower(name_of(path));
  if (ends_with(name, ".json")) return false;
  if (ends_with(name, ".safetensors") || ends_with(name, ".gguf")) return true;
  return std::any_of(kOtherWeights.begin(), kOtherWeights.end(),
                     [&](const char* tail) { return ends_with(name, tail); });
}

bool path_matches(const std::string& pattern, const std::string& path) {
  if (!pattern.empty() && pattern.back() == '/') return path.rfind(pattern, 0) == 0;
  return ::fnmatch(pattern.c_str(), path.c_str(), 0) == 0 ||
         ::fnmatch(pattern.c_str(), std::string(name_of(path)).c_str(), 0) == 0;
}

Result<Selection> select_files(const std::vector<RemoteFile>& files, const std::optional<Json>& index,
                               const Filters& filters) {
  Selection out;
  std::vector<RemoteFile> kept;
  const auto skip = [&](const RemoteFile& f, std::string why) { out.skipped.push_back({f.path, std::move(why)}); };
  for (const RemoteFile& f : files) {
    if (!filters.include.empty() && !any_matches(filters.include, f.path)) {
      skip(f, "not asked for");
      continue;
    }
    if (any_matches(filters.exclude, f.path)) {
      skip(f, "excluded");
      continue;
    }
    if (filters.include.empty()) {
      std::string why = useless(f.path);
      if (why.empty() && index && index->is_object()) {
        const std::string component = component_of(f.path);
        if (component.empty() && is_weights(f.path)) why = "the same weights in one file";
        if (!component.empty() && !index->contains(component)) why = "no part of the pipeline";
      }
      if (!why.empty()) {
        skip(f, std::move(why));
        continue;
      }
    }
    kept.push_back(f);
  }
  if (filters.include.empty()) {
    DQ_CHECK(choose_variants(kept, filters.variant, out.skipped));
    DQ_CHECK(check_one_each(kept));
  }
  for (RemoteFile& f : kept) {
    const Stage stage = stage_of(f.path);
    std::string component = component_of(f.path);
    out.files.push_back({std::move(f), stage, std::move(component)});
  }
  if (out.files.empty())
    return usage_error("[pull] expected files to fetch, got none of the {} that there are{}", files.size(),
                       filters.include.empty() && filters.exclude.empty() ? "" : " (--include, --exclude)");
  std::stable_sort(out.files.begin(), out.files.end(), [](const Chosen& a, const Chosen& b) {
    const auto key = [](const Chosen& c) { return std::pair(c.stage, c.file.path != "model_index.json"); };
    return key(a) < key(b);
  });
  return out;
}

}  // namespace danqing::fetch
