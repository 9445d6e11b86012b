#include "pull/items.h"

#include <fmt/format.h>

#include <algorithm>

namespace danqing::app {
namespace {

using fetch::Stage;

bool ends_with(std::string_view s, std::string_view tail) {
  return s.size() >= tail.size() && s.substr(s.size() - tail.size()) == tail;
}

std::string identity(const fetch::RemoteFile& f) {
  if (!f.sha256.empty()) return "sha256:" + f.sha256;
  if (!f.git_sha1.empty()) return "git:" + f.git_sha1;
  return f.size && !f.etag.empty() ? fmt::format("size:{} etag:{}", *f.size, f.etag) : "";
}

bool is_shard(const std::string& path) { return path.find("-of-") != std::string::npos; }
std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash + 1);
}

bool quantised(const fetch::Chosen& c) {
  return ends_with(c.file.path, ".safetensors") && (c.stage == Stage::text_encoder || c.stage == Stage::transformer ||
                                                    c.stage == Stage::enhancer || c.stage == Stage::other);
}

/// The names that convert gives in a pipeline; elsewhere the file's own.
std::string output_name(const fetch::Chosen& c) {
  const std::string folder = folder_of(c.file.path);
  if (c.component == "transformer") return folder + "diffusion_pytorch_model.gguf";
  if (!c.component.empty() || is_shard(c.file.path)) return folder + "model.gguf";
  return c.file.path.substr(0, c.file.path.size() - std::string_view(".safetensors").size()) + ".gguf";
}

}  // namespace

uint64_t Item::source_bytes() const {
  if (quantiser) return quantiser->source_bytes();
  uint64_t n = 0;
  for (const fetch::RemoteFile& f : sources) n += f.size.value_or(0);
  return n;
}

std::string_view stage_name(Stage stage) {
  switch (stage) {
    case Stage::config: return "configs and tokenizers";
    case Stage::text_encoder: return "text encoder";
    case Stage::transformer: return "denoiser";
    case Stage::vae: return "VAE";
    case Stage::enhancer: return "prompt enhancer";
    case Stage::other: return "weights";
  }
  return "";
}

std::vector<Item> make_items(std::vector<fetch::Chosen> chosen, const std::string& quant) {
  std::vector<Item> items;
  std::vector<std::string> folders;  // whose shards become one file
  for (fetch::Chosen& c : chosen) {
    if (quant.empty() || !quantised(c)) {
      Item item{.path = c.file.path, .stage = c.stage, .sources = {}, .remote = identity(c.file), .quantiser = {}};
      item.sources.push_back(std::move(c.file));
      items.push_back(std::move(item));
      continue;
    }
    const std::string name = output_name(c);
    auto it = std::find_if(items.begin(), items.end(), [&](const Item& i) { return i.quantise && i.path == name; });
    if (it == items.end()) {
      items.push_back(
          {.path = name, .stage = c.stage, .sources = {}, .quantise = true, .remote = quant, .quantiser = {}});
      it = items.end() - 1;
    }
    if (is_shard(c.file.path)) folders.push_back(folder_of(c.file.path));
    const std::string id = identity(c.file);
    it->remote = it->remote.empty() || id.empty() ? "" : it->remote + " " + id;
    it->sources.push_back(std::move(c.file));
  }
  items.erase(std::remove_if(items.begin(), items.end(),
                             [&](const Item& i) {
                               return ends_with(i.path, ".safetensors.index.json") &&
                                      std::find(folders.begin(), folders.end(), folder_of(i.path)) != folders.end();
                             }),
              items.end());
  return items;
}

}  // namespace danqing::app
