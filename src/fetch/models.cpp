#include "fetch/models.h"

#include <algorithm>
#include <cstdlib>

#include "base/text.h"
#include "base/try.h"
#include "fetch/digest.h"
#include "fetch/remote.h"

namespace danqing::fetch {
namespace {

namespace fs = std::filesystem;
constexpr int kDepth = 3;  // owner/name and one more

bool is_model(const fs::path& p) {
  std::error_code ec;
  return fs::exists(manifest_path(p), ec) || fs::exists(p / "model_index.json", ec);
}

/// A directory that holds weights by itself: a component or a single file.
bool holds_weights(const fs::path& p) {
  std::error_code ec;
  for (fs::directory_iterator it(p, ec), end; !ec && it != end; it.increment(ec)) {
    const std::string tail = it->path().extension().string();
    if (tail == ".safetensors" || tail == ".gguf") return true;
  }
  return false;
}

uint64_t bytes_on_disk(const fs::path& folder) {
  uint64_t n = 0;
  std::error_code ec;
  for (fs::recursive_directory_iterator it(folder, ec), end; !ec && it != end; it.increment(ec)) {
    std::error_code ignored;
    if (it->is_regular_file(ignored)) n += fs::is_symlink(it->path(), ignored) ? 0 : it->file_size(ignored);
  }
  return n;
}

InstalledModel read_model(const fs::path& path, std::string name) {
  InstalledModel m{.name = std::move(name), .path = path, .manifest = {}, .bytes = bytes_on_disk(path), .missing = {}};
  auto manifest = read_manifest(path);
  if (!manifest) {
    std::error_code ec;
    m.complete = !fs::exists(manifest_path(path), ec);  // an unreadable one says nothing good
    return m;
  }
  m.manifest = std::move(*manifest);
  m.complete = m.manifest->complete;
  for (const ManifestFile& f : m.manifest->files) {
    const auto [size, time] = stat_file(path / f.path);
    if (time == 0 || f.sha256.empty() || size != f.size) m.missing.push_back(f.path);
  }
  m.complete &= m.missing.empty();
  return m;
}

void search(const fs::path& folder, const std::string& prefix, int depth, std::vector<InstalledModel>& out) {
  std::error_code ec;
  for (fs::directory_iterator it(folder, ec), end; !ec && it != end; it.increment(ec)) {
    const std::string name = it->path().filename().string();
    std::error_code ignored;
    if (name[0] == '.' || !it->is_directory(ignored)) continue;
    if (is_model(it->path()) || holds_weights(it->path()))
      out.push_back(read_model(it->path(), prefix + name));
    else if (depth > 1 && !it->is_symlink(ignored))
      search(it->path(), prefix + name + "/", depth - 1, out);
  }
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

Result<fs::path> models_folder(const fs::path& given) {
  if (!given.empty()) return given;
  if (const std::string own = environment("DANQING_MODELS"); !own.empty()) return fs::path(own);
  if (const std::string data = environment("XDG_DATA_HOME"); !data.empty() && data[0] == '/')
    return fs::path(data) / "danqing" / "models";
  if (const std::string home = environment("HOME"); !home.empty())
    return fs::path(home) / ".local" / "share" / "danqing" / "models";
  return usage_error("[models] no folder for models: set DANQING_MODELS or give --dir");
}

std::vector<InstalledModel> list_models(const fs::path& folder) {
  std::vector<InstalledModel> out;
  search(folder, "", kDepth, out);
  std::sort(out.begin(), out.end(), [](const InstalledModel& a, const InstalledModel& b) { return a.name < b.name; });
  return out;
}

Result<InstalledModel> find_model(const fs::path& folder, const std::string& name) {
  if (!check_remote_path(name))
    return usage_error("[models] expected a model's name as `danqing models list` shows it, got '{}'", one_line(name));
  std::error_code ec;
  const fs::path path = folder / name;
  if (!fs::is_directory(path, ec)) return bad_input("[models] no model '{}' in {}", one_line(name), folder.string());
  const fs::path root = fs::canonical(folder, ec), real = fs::canonical(path, ec);
  const auto inside = std::mismatch(root.begin(), root.end(), real.begin(), real.end());
  if (ec || inside.first != root.end() || real == root)
    return usage_error("[models] '{}' leads out of {}", one_line(name), folder.string());
  if (!is_model(path) && !holds_weights(path))
    return bad_input("[models] {}: expected a model, got a folder of something else", path.string());
  return read_model(path, name);
}

Result<void> remove_model(const fs::path& folder, const std::string& name) {
  DQ_TRY(const InstalledModel model, find_model(folder, name));
  std::error_code ec;
  if (fs::is_symlink(model.path, ec))
    return usage_error("[models] {} is a link; remove it by hand", model.path.string());
  {
    DQ_TRY(const FolderLock lock, FolderLock::take(model.path));
    // Under another name first: nobody opens a model of which half is gone.
    const fs::path away = model.path.parent_path() / (".danqing-removed-" + model.path.filename().string());
    fs::remove_all(away, ec);
    fs::rename(model.path, away, ec);
    if (ec) return fail(ErrorCode::failed, "[models] cannot remove {}: {}", model.path.string(), ec.message());
    fs::remove_all(away, ec);
    if (ec) return fail(ErrorCode::failed, "[models] cannot remove {}: {}", away.string(), ec.message());
  }
  // The owner's empty folder too, and never the folder of models itself.
  for (fs::path owner = fs::path(name).parent_path(); !owner.empty(); owner = owner.parent_path())
    if (!fs::is_empty(folder / owner, ec) || ec || !fs::remove(folder / owner, ec)) break;
  return {};
}

Result<std::vector<FileState>> verify_model(const InstalledModel& model,
                                            const std::function<bool(uint64_t)>& progress) {
  DQ_TRY(const Manifest manifest, read_manifest(model.path));
  std::vector<FileState> out;
  for (const ManifestFile& f : manifest.files) {
    const auto [size, time] = stat_file(model.path / f.path);
    std::string trouble;
    if (f.sha256.empty()) {
      trouble = "not fetched yet";
    } else if (time == 0) {
      trouble = "missing";
    } else if (size != f.size) {
      trouble = fmt::format("expected {} bytes, got {}", f.size, size);
    } else {
      const auto hash = digest_file(model.path / f.path, Digest::Kind::sha256, progress);
      if (!hash && hash.error().code == ErrorCode::cancelled) return hash.error();
      if (!hash)
        trouble = hash.error().message;
      else if (*hash != f.sha256)
        trouble = "damaged: the hash is another than when it was pulled";
    }
    out.push_back({f.path, std::move(trouble)});
  }
  return out;
}

Result<fs::path> resolve_model(const fs::path& given) {
  std::error_code ec;
  if (given.empty() || given.is_absolute() || fs::exists(given, ec) || !check_remote_path(given.string())) return given;
  const auto folder = models_folder();
  if (!folder) return given;
  const auto model = find_model(*folder, given.string());
  if (!model) return given;
  if (model->complete) return model->path;
  return bad_input("[model] {}: {} of its files are missing ({}); `danqing pull` goes on with it", given.string(),
                   model->missing.size(), model->missing.empty() ? "unfinished" : one_line(model->missing[0], 80));
}

}  // namespace danqing::fetch
