// danqing pull: from a hub or plain addresses into the folder of models, staged, resumable, checked.
#pragma once
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "fetch/select.h"

namespace danqing::app {

struct PullState {
  uint64_t done = 0, total = 0;  ///< bytes of everything that is fetched, with what earlier runs left
  uint64_t moved = 0;            ///< over the network in this run
  std::string file;              ///< at work
};

struct PullSettings {
  std::vector<std::string> what;  ///< one repository, or addresses
  std::string hub = "huggingface";
  std::filesystem::path dir;  ///< the folder of models; empty: models_folder()
  std::string name;           ///< below it; empty: the repository's
  fetch::Filters filters;
  std::string quant;  ///< "q4_K"; empty: as stored
  int threads = 1;    ///< for quantising
  int connections = 4;
  uint64_t segment = 0, bytes_per_second = 0;
  int retries = 6;
  double retry_seconds = 1, stall_seconds = 60;
  bool dry_run = false, verify = false;
  std::function<void(const PullState&)> progress;  ///< from any thread, one at a time
  std::function<void(const std::string&)> say;     ///< the same
  std::function<bool()> cancelled;
};

/// {"model", "path", "source", "repository"?, "revision"?, "commit"?, "complete", "files": [{"path", "bytes", "state":
///  "fetched" | "quantised" | "present" | "planned"}], "skipped": [{"path", "reason"}], "bytes", "moved", "seconds",
///  "pipeline"?, "note"?}. Errors: usage, bad_input (the hub's answers, hashes), failed (network, disk), cancelled.
Result<Json> pull(const PullSettings& settings);

}  // namespace danqing::app
