// Which backend a card computes with, found by trial once and kept: a card that computes wrongly is not used, and of
// two backends that show the same card (HIP and Vulkan, say) the faster serves.
#pragma once
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "danqing/result.h"
#include "tune/trials.h"

namespace danqing::tune {

struct Tuning {
  std::string device;  ///< "vulkan0"
  std::string card;    ///< PCI address, or the description where the backend does not tell: what two backends share
  std::string key;     ///< card, backend, driver and versions: what the result is valid for
  std::vector<Trial> trials;
  std::string error;             ///< the device failed; no trials then
  bool flash_attention = false;  ///< the card's own attention is right and faster
  bool measured = false;         ///< now, not read from the cache

  /// Why it must not be used; empty when all is right.
  std::string wrong() const;
  /// Seconds of a picture in layers: text once, the denoiser in each of some steps, the VAE at the end.
  double score() const;
};

struct Options {
  bool again = false;                ///< whatever the cache holds
  std::filesystem::path cache_file;  ///< empty: default_cache_file()
  TrialOptions trial;
  bool software = true;  ///< tune_all: drivers that compute on the processor too (Mesa's llvmpipe)
  std::function<void(const std::string&)> say;  ///< before a measurement, which takes seconds
};

/// $XDG_CACHE_HOME/danqing/tuning.json, else ~/.cache/danqing/tuning.json; empty where there is no home.
std::filesystem::path default_cache_file();

/// From the cache, or measured and kept there. A cache that cannot be read or written is no error. Error usage: an
/// unknown device.
Result<Tuning> tuning_of(const std::string& device, const Options& options = {});

/// The tunings of all cards, the best first within each card.
std::vector<Tuning> tune_all(const Options& options = {});

/// What "auto" stands for once cards are tried: the preferred card by its fastest backend that is right; else the next
/// card; else the CPU. `said`: why something was passed over.
std::string choose(const std::vector<Tuning>& tunings, std::vector<std::string>& said);

}  // namespace danqing::tune
