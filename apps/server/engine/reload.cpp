// New weights for a model that is served.
#include <algorithm>
#include <chrono>

#include "base/text.h"
#include "base/try.h"
#include "base/units.h"
#include "fetch/models.h"
#include "server/engine/models.h"
#include "server/ops/ecs_log.h"

namespace danqing::server {
namespace {

/// A pulled model says what its files must be; one that is half updated is not taken. Gives the hub's commit.
Result<std::string> check_pulled(const std::filesystem::path& path, const std::function<bool(uint64_t)>& go_on) {
  std::error_code ec;
  if (!std::filesystem::exists(fetch::manifest_path(path), ec)) return std::string();
  DQ_TRY(const fetch::Manifest manifest, fetch::read_manifest(path));
  if (!manifest.complete)
    return bad_input("[reload] {}: the pull is not finished; run danqing pull again", path.string());
  const fetch::InstalledModel model{.name = manifest.repository, .path = path, .manifest = manifest, .missing = {}};
  DQ_TRY(const auto files, fetch::verify_model(model, go_on));
  for (const fetch::FileState& f : files)
    if (!f.trouble.empty()) return bad_input("[reload] {}: {}: {}", path.string(), one_line(f.path), f.trouble);
  return manifest.commit;
}

}  // namespace

/// False: there is no room for both.
Result<bool> Models::try_beside(const Entry& entry, Engine& fresh) {
  GenerateRequest r;
  r.prompts = {""};
  r.seeds = {0};
  r.num_inference_steps = 1;
  r.enhancer = EnhancerMode::off;
  const auto plan = fresh.plan(r);
  if (!plan && plan.error().code != ErrorCode::does_not_fit) return plan.error();
  uint64_t others = 0;
  {
    const std::lock_guard lock(mutex_);
    for (const Entry& e : entries_) {
      const DeviceStatus d = e.engine->device();
      others += std::max(d.allocated, e.name == entry.name ? d.peak_allocated : 0);
    }
  }
  if (!plan || plan->device_peak + plan->reserve + others > budget_) return false;
  r.width = r.height = std::max(64, fresh.info().size_multiple);
  RunControl control;
  control.cancelled = [this] { return stopping_.load(); };
  const auto picture = fresh.generate(r, control);
  if (!picture && picture.error().code == ErrorCode::does_not_fit) return false;
  if (!picture && picture.error().code == ErrorCode::failed) return bad_input("{}", picture.error().message);
  if (!picture) return picture.error();
  return true;
}

Result<Reloaded> Models::reload(const std::string& name) {
  const auto start = std::chrono::steady_clock::now();
  const std::unique_lock one(reload_mutex_, std::try_to_lock);
  if (!one) return fail(ErrorCode::failed, "[reload] another reload is at work");
  Entry entry;
  {
    const std::lock_guard lock(mutex_);
    const auto it = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.name == name; });
    if (it == entries_.end()) return usage_error("[reload] there is no model '{}'", one_line(name));
    entry = *it;
  }
  Reloaded out{.name = name};
  DQ_TRY(out.commit, check_pulled(entry.options.paths.model, [this](uint64_t) { return !stopping_; }));
  DQ_TRY(std::unique_ptr<Engine> opened, Engine::open(entry.options));
  const std::shared_ptr<Engine> fresh = std::move(opened);
  DQ_TRY(out.beside, try_beside(entry, *fresh));
  // Of a model that found no room nothing may stay loaded.
  std::shared_ptr<Engine> serving = fresh;
  if (!out.beside && fresh->device().allocated > 0) {
    DQ_TRY(std::unique_ptr<Engine> unloaded, Engine::open(entry.options));
    serving = std::move(unloaded);
  }
  const std::lock_guard lock(mutex_);
  const auto it = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.name == name; });
  it->engine = serving;  // a job that runs holds the old one until it ends
  it->info = serving->info();
  it->bytes = 0;
  for (const ComponentInfo& c : it->info.components) it->bytes += c.bytes;
  it->used = out.beside ? ++clock_ : 0;
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return out;
}

void Models::reload_all() {
  for (const ModelState& m : list()) {
    if (stopping_) return;
    const auto r = reload(m.name);
    if (r)
      log_event(log::Level::info,
                fmt::format("model {} reloaded{}", m.name, r->beside ? "" : "; its weights load with the next job"),
                {{"event.action", "model-reloaded"}, {"danqing.model", m.name}});
    else
      log_event(log::Level::error, r.error().message + "; the old weights keep serving",
                {{"event.action", "model-not-reloaded"}, {"danqing.model", m.name}});
  }
}

}  // namespace danqing::server
