// The models that are served. All are open (headers only) so that requests can be checked; weights come on demand, and
// the least recently used model gives its memory back when the next one needs it.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "danqing/engine.h"
#include "server/config/config.h"

namespace danqing::server {

struct ModelState {
  std::string name;
  ModelInfo info;
  bool loaded = false;
  uint64_t bytes = 0;  ///< of the weights in the files
};

/// What became of a model's new files.
struct Reloaded {
  std::string name;
  bool beside = false;  ///< loaded and tried while the old ones served; else they load with the next job
  std::string commit;   ///< of the hub, for a pulled model
  double seconds = 0;
};

/// Thread-safe; `use` is for the inference thread alone.
class Models {
 public:
  static Result<std::unique_ptr<Models>> open(const Config& config);
  std::vector<ModelState> list() const;
  /// Empty, "auto" and "default" mean the first. Null if there is none of that name.
  std::shared_ptr<Engine> find(const std::string& name) const;
  /// The name by which `find` found it.
  std::string resolve(const std::string& name) const;
  /// For computing: unloads others, the least recently used first, until what `request` is planned to take fits beside
  /// what they hold.
  Result<std::shared_ptr<Engine>> use(const std::string& name, const GenerateRequest& request);
  /// Takes up the files that lie at the model's path now. A job that runs ends with the old weights, those that wait
  /// keep their place and get the new ones. Where both fit, as the plan of a picture of the default size says, the new
  /// weights are loaded and tried before they serve. Errors, with the old ones still serving: usage (no such model),
  /// failed (another reload is at work), and whatever is wrong with the new files.
  Result<Reloaded> reload(const std::string& name);
  /// All of them, one after the other; says in the log what became of each.
  void reload_all();
  void stop() { stopping_ = true; }  ///< a reload in progress ends within a step
  uint64_t budget() const { return budget_; }
  DeviceStatus device() const;

 private:
  struct Entry {
    std::string name;
    EngineOptions options;
    std::shared_ptr<Engine> engine;
    ModelInfo info;
    uint64_t bytes = 0, used = 0;  // `used`: a clock; 0 = not loaded
  };
  Models() = default;
  Result<bool> try_beside(const Entry& entry, Engine& fresh);
  mutable std::mutex mutex_;
  std::mutex reload_mutex_;
  std::atomic<bool> stopping_{false};
  std::vector<Entry> entries_;
  uint64_t budget_ = 0, clock_ = 0;
};

}  // namespace danqing::server
