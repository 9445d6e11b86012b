// The folder in which pulled models live: owner/name below it, each a directory as the engine opens it.
#pragma once
#include <filesystem>
#include <functional>
#include <optional>

#include "fetch/manifest.h"

namespace danqing::fetch {

/// `given` (--dir), else $DANQING_MODELS, else $XDG_DATA_HOME/danqing/models, else ~/.local/share/danqing/models.
/// Error (usage): none of them can be told.
Result<std::filesystem::path> models_folder(const std::filesystem::path& given = {});

struct InstalledModel {
  std::string name;  ///< path below the folder
  std::filesystem::path path;
  std::optional<Manifest> manifest;  ///< absent: put there by hand
  uint64_t bytes = 0;                ///< on the disk
  bool complete = true;
  std::vector<std::string> missing;  ///< files that a complete one would have
};

/// Sorted by name. A folder that is not there is empty.
std::vector<InstalledModel> list_models(const std::filesystem::path& folder);
/// By name. Errors (usage): a name that leads out of the folder; bad_input: no such model.
Result<InstalledModel> find_model(const std::filesystem::path& folder, const std::string& name);
/// Errors: as find_model; failed: in use by a pull, the disk.
Result<void> remove_model(const std::filesystem::path& folder, const std::string& name);

struct FileState {
  std::string path;
  std::string trouble;  ///< empty: as it was pulled
};
/// Hashes every file. Error (bad_input): no manifest; cancelled.
Result<std::vector<FileState>> verify_model(const InstalledModel& model, const std::function<bool(uint64_t)>& progress);

/// "owner/name" as a user gives it with -m: the directory of a pulled model if no such path exists; else `given` as it
/// is. Error (bad_input): it is there but not whole.
Result<std::filesystem::path> resolve_model(const std::filesystem::path& given);

}  // namespace danqing::fetch
