// The models that are served. All are open (headers only) so that requests can be checked; weights come on demand, and
// the least recently used model gives its memory back when the next one needs it.
#pragma once
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
  mutable std::mutex mutex_;
  std::vector<Entry> entries_;
  uint64_t budget_ = 0, clock_ = 0;
};

}  // namespace danqing::server
