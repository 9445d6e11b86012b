#include "server/engine/models.h"

#include <algorithm>

#include "base/log.h"
#include "base/try.h"
#include "base/units.h"
#include "common/model_options.h"
#include "fetch/models.h"

namespace danqing::server {

Result<std::unique_ptr<Models>> Models::open(const Config& config) {
  std::unique_ptr<Models> m(new Models);
  std::vector<std::string> wanted = config.models;
  if (wanted.empty()) {
    DQ_TRY(const std::filesystem::path path, default_model());
    wanted.push_back(path.string());
  }
  DQ_TRY(const ComputeType type, app::parse_compute_type(config.precision));
  DQ_TRY(MemoryOptions memory, app::parse_memory(config.placement));
  DQ_TRY(memory.device_memory, parse_bytes(config.memory));
  for (const std::string& word : wanted) {
    Entry e;
    const size_t equal = word.find('=');
    DQ_TRY(e.options.paths.model, fetch::resolve_model(equal == std::string::npos ? word : word.substr(equal + 1)));
    e.options.device = config.device;
    e.options.cpu.threads = config.threads;
    e.options.compute_type = type;
    e.options.memory = memory;
    DQ_TRY(std::unique_ptr<Engine> engine, Engine::open(e.options));
    e.engine = std::move(engine);
    e.info = e.engine->info();
    e.name = equal == std::string::npos ? e.info.name : word.substr(0, equal);
    for (const Entry& other : m->entries_)
      if (other.name == e.name)
        return usage_error("[serve] two models are called '{}'; name them with --model NAME=PATH", e.name);
    for (const ComponentInfo& c : e.info.components) e.bytes += c.bytes;
    m->entries_.push_back(std::move(e));
  }
  m->budget_ = memory.device_memory;
  if (m->budget_ == 0) m->budget_ = m->entries_[0].engine->device().memory_free;
  return m;
}

std::vector<ModelState> Models::list() const {
  const std::lock_guard lock(mutex_);
  std::vector<ModelState> out;
  for (const Entry& e : entries_) out.push_back({e.name, e.info, e.used > 0, e.bytes});
  return out;
}

std::string Models::resolve(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  if (name.empty() || name == "auto" || name == "default") return entries_[0].name;
  for (const Entry& e : entries_)
    if (e.name == name) return name;
  return "";
}

std::shared_ptr<Engine> Models::find(const std::string& name) const {
  const std::string known = resolve(name);
  const std::lock_guard lock(mutex_);
  for (const Entry& e : entries_)
    if (e.name == known) return e.engine;
  return nullptr;
}

DeviceStatus Models::device() const {
  const std::lock_guard lock(mutex_);
  DeviceStatus s = entries_[0].engine->device();
  for (size_t i = 1; i < entries_.size(); ++i) s.allocated += entries_[i].engine->device().allocated;
  return s;
}

Result<std::shared_ptr<Engine>> Models::use(const std::string& name, const GenerateRequest& request) {
  const std::lock_guard lock(mutex_);
  const auto it = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.name == name; });
  if (it == entries_.end()) return usage_error("[model] there is no model '{}'", name);
  if (entries_.size() > 1) {
    const auto plan = it->engine->plan(request);
    const uint64_t needed = plan ? plan->device_peak + plan->reserve : 0;
    for (;;) {
      uint64_t others = 0;
      Entry* oldest = nullptr;
      for (Entry& e : entries_) {
        if (e.used == 0 || &e == &*it) continue;
        others += e.engine->device().allocated;
        if (!oldest || e.used < oldest->used) oldest = &e;
      }
      if (!oldest || others + needed <= budget_) break;
      log::info("unloading {} ({}) to make room for {}", oldest->name, format_bytes(oldest->engine->device().allocated),
                it->name);
      DQ_TRY(std::unique_ptr<Engine> fresh, Engine::open(oldest->options));  // headers only
      oldest->engine = std::move(fresh);
      oldest->used = 0;
    }
  }
  it->used = ++clock_;
  return it->engine;
}

}  // namespace danqing::server
