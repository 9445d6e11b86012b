#include "tune/tune.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "base/try.h"
#include "device/pci.h"

namespace danqing::tune {
namespace {

namespace fs = std::filesystem;

constexpr double kSteps = 8;    // of a picture, for weighing the stages; a distilled model's
constexpr double kLayers = 36;  // of a denoiser
constexpr double kTextLayers = 26;
constexpr double kConvolutions = 30;  // of a decode, most of them at larger sizes: as many of the measured kind
constexpr double kWorthIt = 0.95;     // the card's own attention must save a twentieth
constexpr size_t kMostCache = 1 << 20;

/// A driver that computes on the processor: slow, and never worth a choice; its trial is a small one.
bool is_software(const DeviceInfo& info) {
  return info.description.find("llvmpipe") != std::string::npos ||
         info.description.find("SwiftShader") != std::string::npos;
}
constexpr double kSoftwareScale = 0.04;

/// The kernel's driver, whose update may change speed and results.
std::string driver_version(const DeviceInfo& info) {
  const char* module = info.backend == "CUDA" ? "/sys/module/nvidia/version" : "/sys/module/amdgpu/version";
  std::string text;
  std::ifstream(module) >> text;
  if (text.empty()) std::ifstream("/proc/sys/kernel/osrelease") >> text;
  return text;
}

Json to_json(const Tuning& t) {
  Json trials = Json::array();
  for (const Trial& r : t.trials)
    trials.push_back({{"stage", std::string(name(r.stage))},
                      {"flash", r.flash},
                      {"deviation", std::isfinite(r.deviation) ? Json(r.deviation) : Json("not finite")},
                      {"seconds", r.seconds}});
  return {{"trials", trials}, {"flash_attention", t.flash_attention}};
}

std::optional<Tuning> from_json(const Json& j) {
  Tuning t;
  if (!j.is_object() || !j.contains("trials") || !j["trials"].is_array() || !j.contains("flash_attention") ||
      !j["flash_attention"].is_boolean())
    return {};
  t.flash_attention = j["flash_attention"].get<bool>();
  for (const Json& r : j["trials"]) {
    if (!r.is_object() || !r.value("stage", Json()).is_string() || !r.value("seconds", Json()).is_number() ||
        !r.value("flash", Json()).is_boolean())
      return {};
    Trial trial;
    const std::string stage = r["stage"].get<std::string>();
    trial.stage = stage == "text" ? Stage::text : stage == "denoiser" ? Stage::denoiser : Stage::vae;
    trial.flash = r["flash"].get<bool>();
    trial.seconds = r["seconds"].get<double>();
    const Json d = r.value("deviation", Json());
    trial.deviation = d.is_number() ? d.get<double>() : std::numeric_limits<double>::infinity();
    t.trials.push_back(trial);
  }
  return t.trials.empty() ? std::nullopt : std::optional(t);
}

Json read_cache(const fs::path& file) {
  const auto text = file.empty() ? Result<std::string>(std::string()) : read_text(file, kMostCache);
  Json j = Json::parse(text ? *text : "", nullptr, false);
  return j.is_object() ? j : Json::object();
}

void keep(const fs::path& file, const Tuning& t) {
  if (file.empty()) return;
  std::error_code ec;
  fs::create_directories(file.parent_path(), ec);
  Json all = read_cache(file);  // another process may have added to it meanwhile
  all[t.key] = to_json(t);
  (void)write_file(file, dump_json(all, 1) + "\n");
}

const Trial* find(const Tuning& t, Stage stage, bool flash) {
  for (const Trial& r : t.trials)
    if (r.stage == stage && r.flash == flash) return &r;
  return nullptr;
}

Result<void> measure(Tuning& t, const TrialOptions& trial_options) {
  DQ_TRY(const std::shared_ptr<Device> device, Device::open(t.device));
  DQ_TRY(const std::shared_ptr<Device> cpu, Device::open("cpu"));
  for (const Stage stage : {Stage::text, Stage::denoiser, Stage::vae}) {
    DQ_TRY(Trial trial, run_trial(*device, *cpu, stage, false, trial_options));
    t.trials.push_back(trial);
    if (stage != Stage::denoiser || device->is_cpu()) continue;
    // A card without such a kernel goes on without it.
    if (const auto flash = run_trial(*device, *cpu, stage, true, trial_options)) t.trials.push_back(*flash);
  }
  const Trial *plain = find(t, Stage::denoiser, false), *flash = find(t, Stage::denoiser, true);
  t.flash_attention = flash && flash->deviation <= kMostDeviation && flash->seconds < kWorthIt * plain->seconds;
  return {};
}

Tuning tuned(const DeviceInfo& info, const Options& o) {
  Tuning t;
  t.device = info.name;
  t.card = pci_address(info.name);
  if (t.card.empty()) t.card = info.description;
  t.key = fmt::format("{} | {} | {} | {} | ggml {} | danqing {}", t.card, info.description, info.backend,
                      driver_version(info), ggml_version_text(), DANQING_VERSION);
  if (!info.unusable.empty()) {
    t.error = info.unusable;
    return t;
  }
  const fs::path file = o.cache_file.empty() ? default_cache_file() : o.cache_file;
  if (!o.again) {
    const Json cache = read_cache(file);
    if (auto known = cache.contains(t.key) ? from_json(cache[t.key]) : std::nullopt) {
      known->device = t.device, known->card = t.card, known->key = t.key;
      return std::move(*known);
    }
  }
  if (o.say)
    o.say(fmt::format("{} ({}) is tried for the first time with this driver; the result is kept", info.name,
                      info.description));
  t.measured = true;
  TrialOptions trial = o.trial;
  if (is_software(info)) trial.scale = std::min(trial.scale, kSoftwareScale);
  if (const auto done = measure(t, trial); !done) {
    t.error = done.error().message;
    t.trials.clear();
    return t;  // not kept: the next start tries again
  }
  keep(file, t);
  return t;
}

}  // namespace

std::string Tuning::wrong() const {
  if (!error.empty()) return error;
  for (const Trial& r : trials)
    if (!r.flash && !(r.deviation <= kMostDeviation))
      return fmt::format("it computes wrongly: {} is off by {:.1e} (at most {:.0e}); update its driver", name(r.stage),
                         r.deviation, kMostDeviation);
  return "";
}

double Tuning::score() const {
  double seconds = 0;
  for (const Trial& r : trials) {
    if (r.stage == Stage::text) seconds += kTextLayers * r.seconds;
    if (r.stage == Stage::vae) seconds += kConvolutions * r.seconds;
    if (r.stage == Stage::denoiser && r.flash == flash_attention) seconds += kSteps * kLayers * r.seconds;
  }
  return seconds;
}

fs::path default_cache_file() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache && *cache)
    return fs::path(cache) / "danqing/tuning.json";
  const char* home = std::getenv("HOME");
  return home && *home ? fs::path(home) / ".cache/danqing/tuning.json" : fs::path();
}

Result<Tuning> tuning_of(const std::string& device, const Options& o) {
  for (const DeviceInfo& d : list_devices())
    if (d.name == device) return tuned(d, o);
  return usage_error("[tune] expected a card of this machine, got \"{}\"", device);
}

std::vector<Tuning> tune_all(const Options& o) {
  std::vector<Tuning> list;
  for (const DeviceInfo& d : list_devices())
    if (d.backend != "CPU" && (o.software || !is_software(d))) list.push_back(tuned(d, o));
  return list;
}

std::string choose(const std::vector<Tuning>& tunings, std::vector<std::string>& said) {
  std::vector<std::string> order = devices_by_preference();
  for (const std::string& first : order) {
    const auto of = [&](const std::string& device) {
      return std::find_if(tunings.begin(), tunings.end(), [&](const Tuning& t) { return t.device == device; });
    };
    if (of(first) == tunings.end()) return first;  // the CPU
    const Tuning* best = nullptr;
    for (const Tuning& t : tunings) {
      if (t.card != of(first)->card || !t.wrong().empty()) continue;
      if (!best || t.score() < best->score()) best = &t;
    }
    if (best) {
      if (best->device != first)
        said.push_back(fmt::format("{} is used for {}: {:.0f} % of the time of {}", best->device, best->card,
                                   of(first)->wrong().empty() ? 100 * best->score() / of(first)->score() : 0.0, first));
      return best->device;
    }
    said.push_back(fmt::format("{} is passed over: {}", first, of(first)->wrong()));
  }
  return "cpu";
}

}  // namespace danqing::tune
