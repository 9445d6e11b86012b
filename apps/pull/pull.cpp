#include "pull/pull.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <set>

#include "base/text.h"
#include "base/try.h"
#include "checkpoint/kinds.h"
#include "fetch/models.h"
#include "pull/local.h"

namespace danqing::app {
namespace {

namespace fs = std::filesystem;
using fetch::Manifest;
using fetch::ManifestFile;

constexpr size_t kMaxIndex = 1 << 20;

/// "https://hub/owner/name" as people copy it from their browser.
std::string repository_of_page(const std::string& word, const std::string& endpoint) {
  if (word.rfind(endpoint + "/", 0) != 0) return "";
  std::string rest = word.substr(endpoint.size() + 1);
  if (rest.rfind("models/", 0) == 0) rest = rest.substr(7);
  while (!rest.empty() && rest.back() == '/') rest.pop_back();
  if (fetch::is_weights(rest) || fs::path(rest).extension() == ".json") return "";  // a file of that server
  return std::count(rest.begin(), rest.end(), '/') == 1 && fetch::parse_repository(rest) ? rest : "";
}

class Puller {
 public:
  explicit Puller(const PullSettings& s) : s_(s) {}

  Result<Json> run() {
    const auto start = std::chrono::steady_clock::now();
    DQ_CHECK(find_source());
    DQ_CHECK(choose());
    if (s_.dry_run) return report(start);
    std::error_code ec;
    fs::create_directories(path_, ec);
    if (ec) return fail(ErrorCode::failed, "[pull] cannot create {}: {}", path_.string(), ec.message());
    DQ_TRY(const fetch::FolderLock lock, fetch::FolderLock::take(path_));
    DQ_CHECK(look_at_what_is_here());
    DQ_CHECK(plan_quantising());
    for (const Item& item : items_) {
      state_.total += item.source_bytes();
      if (item.done) state_.done += item.source_bytes();
    }
    DQ_CHECK(check_space(path_, items_));
    if (!update_) DQ_CHECK(note_unfinished());
    for (Item& item : items_) DQ_CHECK(fetch_item(item));
    DQ_CHECK(finish());
    return report(start);
  }

 private:
  // ---- what there is

  Result<void> find_source() {
    DQ_TRY(const fetch::Hub hub, fetch::parse_hub(s_.hub));
    DQ_TRY(const fetch::HubAddress address, fetch::hub_from_environment(hub));
    fetch::HttpSettings h;
    h.credentials = fetch::credentials_of(address);
    h.bytes_per_second = static_cast<double>(s_.bytes_per_second);
    h.connections = s_.connections;
    h.retries = s_.retries;
    h.retry_seconds = s_.retry_seconds;
    h.stall_seconds = s_.stall_seconds;
    h.cancelled = s_.cancelled;
    h.say = [this](const std::string& line) { say(line); };
    http_ = std::make_unique<fetch::Http>(std::move(h));
    std::string repository = s_.what.size() == 1 ? repository_of_page(s_.what[0], address.endpoint) : "";
    const bool addresses = s_.what[0].find("://") != std::string::npos;
    if (repository.empty() && !addresses) repository = s_.what[0];
    if (!repository.empty() && s_.what.size() > 1)
      return usage_error("[pull] expected one owner/name or only addresses, got {} words", s_.what.size());
    if (!repository.empty()) {
      DQ_TRY(const fetch::RepositoryId id, fetch::parse_repository(repository));
      DQ_TRY(listing_, fetch::list_repository(*http_, address, id));
      name_ = id.name;
    } else {
      DQ_TRY(listing_, fetch::list_urls(*http_, s_.what));
      name_ = fs::path(listing_.files[0].path).stem().string();
    }
    if (!s_.name.empty()) name_ = s_.name;
    if (!fetch::check_remote_path(name_))
      return usage_error("[--name] expected a folder's name, got '{}'", one_line(name_, 80));
    DQ_TRY(const fs::path folder, fetch::models_folder(s_.dir));
    path_ = fs::absolute(folder) / name_;
    return {};
  }

  Result<void> choose() {
    fetch::Selection selection;
    if (listing_.source == "url" && s_.filters.include.empty() && s_.filters.exclude.empty()) {
      for (const fetch::RemoteFile& f : listing_.files)
        selection.files.push_back(
            {f, fetch::is_weights(f.path) ? fetch::Stage::other : fetch::Stage::config, std::string()});
    } else {
      DQ_TRY(const auto index, pipeline_index());
      DQ_TRY(selection, fetch::select_files(listing_.files, index, s_.filters));
    }
    skipped_ = std::move(selection.skipped);
    items_ = make_items(std::move(selection.files), s_.quant);
    if (!s_.quant.empty() && std::none_of(items_.begin(), items_.end(), [](const Item& i) { return i.quantise; }))
      return usage_error("[--quant] expected safetensors weights to quantise, got none");
    std::set<std::string> names;
    for (const Item& i : items_)
      if (!names.insert(i.path).second)
        return usage_error("[--quant] two files would become {}; choose with --include", i.path);
    return {};
  }

  /// model_index.json says which folders belong to the pipeline, and whether it is one that runs here.
  Result<std::optional<Json>> pipeline_index() {
    const auto it = std::find_if(listing_.files.begin(), listing_.files.end(),
                                 [](const fetch::RemoteFile& f) { return f.path == "model_index.json"; });
    if (it == listing_.files.end() || !s_.filters.include.empty()) return std::optional<Json>();
    DQ_TRY(const std::string text, http_->text(it->url, kMaxIndex));
    DQ_TRY(Json json, parse_json(text, fetch::shown_url(it->url)));
    const std::string kind = class_of_config(json);
    const auto& known = known_pipelines();
    if (std::find(known.begin(), known.end(), kind) == known.end())
      return bad_input("[pull] {}: is a {}, which danqing cannot run; --include '*' fetches it all the same",
                       listing_.repository, kind.empty() ? "pipeline without a class" : one_line(kind, 60));
    return std::optional<Json>(std::move(json));
  }

  // ---- what is here

  Result<void> look_at_what_is_here() {
    if (auto old = fetch::read_manifest(path_)) old_ = std::move(*old);
    update_ = old_.complete;
    manifest_.source = listing_.source;
    manifest_.endpoint = listing_.endpoint;
    manifest_.repository = listing_.repository;
    manifest_.revision = listing_.revision;
    manifest_.commit = listing_.commit;
    manifest_.quant = s_.quant;
    if (listing_.source == "url")
      for (const fetch::RemoteFile& f : listing_.files) manifest_.urls.push_back(fetch::shown_url(f.url));
    for (Item& item : items_) {
      ManifestFile entry{.path = item.path, .remote = item.remote};
      DQ_TRY(item.done, lies_here(*http_, path_, item, old_, s_.verify, entry));
      manifest_.files.push_back(std::move(entry));
    }
    return {};
  }

  fetch::DownloadOptions download_options() {
    fetch::DownloadOptions o;
    o.connections = s_.connections;
    o.segment = s_.segment;
    o.present = [this](int64_t n) { count(n, 0); };
    o.moved = [this](int64_t n) { count(0, n); };
    return o;
  }

  Result<void> plan_quantising() {
    if (s_.quant.empty()) return {};
    DQ_TRY(const DType type, parse_type(s_.quant, TensorSource::Format::gguf, "--quant"));
    for (Item& item : items_) {
      if (!item.quantise || item.done) continue;
      std::sort(item.sources.begin(), item.sources.end(),
                [](const fetch::RemoteFile& a, const fetch::RemoteFile& b) { return a.path < b.path; });
      std::error_code ec;
      fs::create_directories((path_ / item.path).parent_path(), ec);
      auto q = StreamQuantiser::plan(*http_, item.sources, type, path_ / item.path, download_options());
      if (!q) return q.error();
      item.quantiser = std::move(*q);
    }
    return {};
  }

  // ---- the work

  Result<void> fetch_item(Item& item) {
    {
      const std::lock_guard lock(mutex_);
      state_.file = item.path;
    }
    if (item.done) return {};
    const fs::path file = path_ / item.path;
    fetch::Downloaded got;
    if (item.quantiser) {
      DQ_TRY(got, item.quantiser->run(s_.threads));
    } else {
      DQ_TRY(got, fetch::download(*http_, item.sources[0], file, download_options()));
    }
    fetched_.insert(item.path);
    ManifestFile& entry = *manifest_.find(item.path);
    entry.size = got.size;
    entry.sha256 = got.sha256;
    entry.mtime = fetch::stat_file(fetch::part_of(file)).second;  // a new name does not change it
    if (update_) return {};                                       // the old version stays whole until the new one is
    DQ_CHECK(note_unfinished());
    return fetch::publish(file);
  }

  /// The manifest of a model that is not whole, with the files that are removed when it is.
  Result<void> note_unfinished() {
    Manifest m = manifest_;
    for (const ManifestFile& f : old_.files)
      if (!m.find(f.path)) m.files.push_back(f);
    return fetch::write_manifest(path_, m);
  }

  Result<void> finish() {
    if (update_) {
      if (fetched_.empty() && same_files()) {
        manifest_.complete = true;
        return fetch::write_manifest(path_, manifest_);
      }
      // A kill from here on leaves a mixture, and the manifest says so: the same command finishes it.
      DQ_CHECK(note_unfinished());
      for (const std::string& path : fetched_) DQ_CHECK(fetch::publish(path_ / path));
    }
    for (const ManifestFile& f : old_.files)  // of an earlier version or choice
      if (!manifest_.find(f.path)) {
        std::error_code ec;
        fs::remove(path_ / f.path, ec);
      }
    manifest_.complete = true;
    DQ_CHECK(fetch::write_manifest(path_, manifest_));
    sweep();
    return {};
  }

  bool same_files() const {
    return std::all_of(old_.files.begin(), old_.files.end(),
                       [&](const ManifestFile& f) { return manifest_.find(f.path) != nullptr; });
  }

  /// What interrupted runs of other versions left.
  void sweep() {
    std::error_code ec;
    std::vector<fs::path> leftovers;
    for (fs::recursive_directory_iterator it(path_, ec), end; !ec && it != end; it.increment(ec)) {
      const std::string name = it->path().filename().string(), tail = it->path().extension().string();
      if (name.rfind(".danqing-part", 0) == 0 || tail == ".part" || tail == ".journal") leftovers.push_back(it->path());
    }
    for (const fs::path& p : leftovers) fs::remove(p, ec);
  }

  // ---- what is told

  void count(int64_t present, int64_t moved) {
    const std::lock_guard lock(mutex_);
    state_.done = static_cast<uint64_t>(std::max<int64_t>(0, static_cast<int64_t>(state_.done) + present));
    state_.moved += static_cast<uint64_t>(moved);
    if (s_.progress) s_.progress(state_);
  }

  void say(const std::string& line) {
    const std::lock_guard lock(mutex_);
    if (s_.say) s_.say(line);
  }

  Result<Json> report(std::chrono::steady_clock::time_point start) {
    Json files = Json::array(), skipped = Json::array();
    uint64_t bytes = 0;
    for (const Item& item : items_) {
      const ManifestFile* entry = manifest_.find(item.path);
      const uint64_t size = entry ? entry->size : item.source_bytes();
      const char* state = s_.dry_run ? "planned" : item.done ? "present" : item.quantise ? "quantised" : "fetched";
      files.push_back(
          {{"path", item.path}, {"bytes", size}, {"state", state}, {"stage", std::string(stage_name(item.stage))}});
      bytes += size;
    }
    for (const fetch::Skipped& k : skipped_) skipped.push_back({{"path", k.path}, {"reason", k.reason}});
    Json out = {
        {"model", name_},     {"path", path_.string()}, {"source", listing_.source}, {"files", files},
        {"skipped", skipped}, {"bytes", bytes},         {"moved", state_.moved},     {"complete", manifest_.complete}};
    if (!listing_.repository.empty()) out["repository"] = listing_.repository;
    if (!listing_.revision.empty()) out["revision"] = listing_.revision;
    if (!listing_.commit.empty()) out["commit"] = listing_.commit;
    if (!s_.quant.empty()) out["quant"] = s_.quant;
    out["seconds"] = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (s_.dry_run) return out;
    std::error_code ec;
    if (!fs::exists(path_ / "model_index.json", ec)) return out;
    const auto checkpoint = open_checkpoint({.model = path_});
    if (checkpoint)
      out["pipeline"] = checkpoint->pipeline_class;
    else
      out["note"] = checkpoint.error().message;
    return out;
  }

  const PullSettings& s_;
  std::unique_ptr<fetch::Http> http_;
  fetch::Listing listing_;
  std::string name_;
  fs::path path_;
  std::vector<Item> items_;
  std::vector<fetch::Skipped> skipped_;
  Manifest old_, manifest_;
  bool update_ = false;
  std::set<std::string> fetched_;
  std::mutex mutex_;
  PullState state_;
};

}  // namespace

Result<Json> pull(const PullSettings& settings) { return Puller(settings).run(); }

}  // namespace danqing::app
