#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "base/try.h"
#include "danqing/engine.h"

namespace danqing {

Result<std::filesystem::path> default_model() {
  namespace fs = std::filesystem;
  std::error_code ec;
  if (const char* env = std::getenv("DANQING_MODEL"); env && *env) {
    if (fs::exists(env, ec)) return fs::path(env);
    return bad_input("[model] DANQING_MODEL names {}, which does not exist", env);
  }
  std::vector<fs::path> places;
  if (const fs::path exe = fs::read_symlink("/proc/self/exe", ec); !ec) {
    places.push_back(exe.parent_path() / "models/danqing-mini");
    places.push_back(exe.parent_path() / "../share/danqing/models/danqing-mini");
  }
  places.push_back(fs::path(DANQING_INSTALLED_MODELS) / "danqing-mini");
  places.push_back(fs::path(DANQING_SOURCE_MODELS) / "danqing-mini");
  std::string looked;
  for (const fs::path& p : places) {
    if (fs::exists(p / "model_index.json", ec)) return p.lexically_normal();
    looked += (looked.empty() ? "" : ", ") + p.lexically_normal().string();
  }
  return bad_input("[model] no model given (-m DIR) and none installed; looked in {}", looked);
}

}  // namespace danqing
