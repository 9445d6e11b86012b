#include "device/backends.h"

#include <dlfcn.h>
#include <fmt/ranges.h>
#include <ggml.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <map>
#include <sstream>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "device/gfx.h"

namespace danqing {
namespace {

namespace fs = std::filesystem;

struct Kind {
  const char *name, *file;
};
constexpr Kind kKinds[] = {{"HIP", "libggml-hip.so"}, {"CUDA", "libggml-cuda.so"}, {"Vulkan", "libggml-vulkan.so"}};
constexpr size_t kMostProgram = size_t{2} << 30;  // of a HIP module with kernels for every card

void forward_log(ggml_log_level, const char* text, void*) noexcept {
  std::string_view line = text ? text : "";
  while (!line.empty() && std::isspace(static_cast<unsigned char>(line.back()))) line.remove_suffix(1);
  if (!line.empty()) log::write(log::Level::debug, line);
}

std::vector<fs::path> folders() {
  std::vector<fs::path> list;
  if (const char* given = std::getenv("DANQING_BACKEND_PATH")) {
    std::stringstream all(given);
    for (std::string one; std::getline(all, one, ':');)
      if (!one.empty()) list.emplace_back(one);
    return list;
  }
  Dl_info self{};
  std::error_code ec;
  if (!dladdr(reinterpret_cast<void*>(&backends), &self) || !self.dli_fname) return list;
  const fs::path here = fs::canonical(self.dli_fname, ec).parent_path();
  if (ec) return list;
  list.push_back(here / "danqing/backends");  // of the shared library
  list.push_back(here.parent_path() / DANQING_LIBDIR / "danqing/backends");
  return list;
}

bool may_use(const char* file) { return ::access(file, R_OK | W_OK) == 0; }

/// Why a backend whose module runs has found no card.
std::string no_card(const std::string& name) {
  if (name == "HIP") {
    if (::access("/dev/kfd", F_OK) != 0)
      return "no AMD compute driver: /dev/kfd is missing (amdgpu not loaded, or not "
             "passed into the container)";
    if (!may_use("/dev/kfd")) return "no right to /dev/kfd: add the user to the groups render and video, log in again";
    return "ROCm finds no card";
  }
  if (name == "CUDA")
    return ::access("/dev/nvidiactl", F_OK) == 0 ? "CUDA finds no card" : "no NVIDIA driver: /dev/nvidiactl is missing";
  if (name == "Vulkan") {
    std::error_code ec;
    bool some = false, allowed = false;
    for (const auto& entry : fs::directory_iterator("/dev/dri", ec)) {
      if (!entry.path().filename().string().starts_with("renderD")) continue;
      some = true;
      allowed |= may_use(entry.path().c_str());
    }
    if (some && !allowed) return "no right to /dev/dri/renderD*: add the user to the groups render and video";
    return "no Vulkan driver offers a card (a software driver counts only when GGML_VK_VISIBLE_DEVICES names it)";
  }
  return "its driver finds no card";
}

/// Whether a card of that maker, or any, is built into this machine.
bool has_card(const std::string& vendor) {
  std::error_code ec;
  for (const auto& entry : fs::directory_iterator("/sys/class/drm", ec)) {
    const auto id = read_text(entry.path() / "device/vendor", 64);
    if (id && (vendor.empty() || id->starts_with(vendor))) return true;
  }
  return false;
}

int count_cards(ggml_backend_reg_t reg) {
  int n = 0;
  for (size_t i = 0; i < ggml_backend_reg_dev_count(reg); ++i) {
    const auto type = ggml_backend_dev_type(ggml_backend_reg_dev_get(reg, i));
    n += type == GGML_BACKEND_DEVICE_TYPE_GPU || type == GGML_BACKEND_DEVICE_TYPE_IGPU;
  }
  return n;
}

BackendStatus load(const Kind& kind, const fs::path& file) {
  BackendStatus s{kind.name, file};
  // The loader's own words say which library of the driver lacks; ggml tells only that it failed.
  if (!dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    const char* words = dlerror();
    s.reason = fmt::format("its driver's libraries are not there: {}", one_line(words ? words : "unknown", 160));
    return s;
  }
  ggml_backend_reg_t reg = ggml_backend_load(file.c_str());
  if (!reg)
    s.reason = "it does not start: made for another version of ggml, or refused by the driver";
  else
    s.devices = count_cards(reg);
  return s;
}

/// The file that a backend's code lies in.
fs::path module_of(ggml_backend_reg_t reg) {
  Dl_info info{};
  void* address = ggml_backend_reg_get_proc_address(reg, "ggml_backend_get_features");
  return address && dladdr(address, &info) && info.dli_fname ? fs::path(info.dli_fname) : fs::path();
}

std::vector<BackendStatus> start() {
  ggml_log_set(forward_log, nullptr);
  // A build that has the CPU linked in is not asked to search the file system for ggml's own modules.
  if (!ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU)) ggml_backend_load_all();
  if (ggml_context* c = ggml_init({0, nullptr, true})) ggml_free(c);  // fills ggml's tables
  std::vector<BackendStatus> list;
  for (size_t i = 0; i < ggml_backend_reg_count(); ++i) {
    ggml_backend_reg_t reg = ggml_backend_reg_get(i);
    const std::string name = backend_name(reg);
    if (std::any_of(std::begin(kKinds), std::end(kKinds), [&](const Kind& k) { return name == k.name; }))
      list.push_back({name, "", count_cards(reg), ""});
  }
  for (const fs::path& folder : folders())
    for (const Kind& kind : kKinds) {
      std::error_code ec;
      const fs::path file = folder / kind.file;
      const bool known = std::any_of(list.begin(), list.end(), [&](const auto& s) { return s.name == kind.name; });
      if (!known && fs::is_regular_file(file, ec)) list.push_back(load(kind, file));
    }
  for (BackendStatus& s : list) {
    if (s.devices == 0 && s.reason.empty()) s.reason = no_card(s.name);
    s.expected = has_card(s.name == "HIP" ? "0x1002" : s.name == "CUDA" ? "0x10de" : "");
  }
  std::stable_sort(list.begin(), list.end(),
                   [](const auto& a, const auto& b) { return backend_rank(a.name) < backend_rank(b.name); });
  return list;
}

}  // namespace

const std::vector<BackendStatus>& backends() {
  static const std::vector<BackendStatus> list = start();
  return list;
}

std::string skipped_text(const BackendStatus& s) {
  return fmt::format("{}{} is skipped: {}", s.name,
                     s.file.empty() ? "" : fmt::format(" ({})", s.file.filename().string()), s.reason);
}

int backend_rank(const std::string& name) {
  const auto it = std::find_if(std::begin(kKinds), std::end(kKinds), [&](const Kind& k) { return name == k.name; });
  return static_cast<int>(it - std::begin(kKinds));
}

std::string backend_name(ggml_backend_reg_t backend) {
  const std::string name = ggml_backend_reg_name(backend);
  return name == "ROCm" ? "HIP" : name;
}

std::string unusable(ggml_backend_dev_t card) {
  ggml_backend_reg_t reg = ggml_backend_dev_backend_reg(card);
  if (backend_name(reg) != "HIP") return "";
  ggml_backend_dev_props props{};
  ggml_backend_dev_get_props(card, &props);
  static const std::map<std::string, std::string> targets = gfx_targets();
  const auto it = targets.find(props.device_id ? props.device_id : "");
  const char* forced = std::getenv("HSA_OVERRIDE_GFX_VERSION");
  const std::string target = forced ? gfx_override(forced) : it != targets.end() ? it->second : "";
  static const std::vector<std::string> built = [&] {
    const auto program = read_text(module_of(reg), kMostProgram);
    return gfx_targets_in(program ? *program : "");
  }();
  if (target.empty() || built.empty() || std::count(built.begin(), built.end(), target) > 0) return "";
  return fmt::format("it is a {} and the HIP backend has kernels for {} only", target, fmt::join(built, ", "));
}

}  // namespace danqing
