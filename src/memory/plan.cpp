#include "memory/plan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>

#include "base/try.h"
#include "base/units.h"

namespace danqing::memory {
namespace {

constexpr uint64_t kMostReserve = uint64_t{4} << 30;

// Bytes a second, for weighing one way against another only.
constexpr double kHostMemory = 8e9;  // pages of a mapped file that are in the page cache
constexpr double kLink = 20e9;       // PCIe 4.0 x16 as drivers reach it
constexpr double kDisk = 1.5e9;      // a plain NVMe disk
// What a loss of precision may save, in seconds of a picture.
constexpr double kLossCost[] = {0, 20, 90};
constexpr double kVisibleCopies = 0.1;  // of copies behind a computation
constexpr double kDecode = 4;           // of decoding a picture, for weighing what tiles compute again
constexpr double kBatchCost = 0.02;     // of a halving of the batch, for each pass: a card that is less full
constexpr int kTiles[] = {256, 128, 64, 32, 16, 8};
constexpr int kGivenTile = 64;  // --vae-tiling on: 512 pixels with the usual VAEs

/// Where one part goes, and what that takes and costs.
struct Way {
  size_t choice = 0;
  Placement placement = Placement::resident;
  int resident_groups = 0;
  uint64_t held = 0, loading = 0, compute = 0, streamed = 0;
  uint64_t own() const { return std::max(loading, held + compute); }
  double cost = 0;
};

struct Candidate {
  int batch = 1, tile = 0;
  std::vector<Way> ways;  // by index of Needs::parts
  uint64_t peak = 0;
  double cost = std::numeric_limits<double>::infinity();
};

uint64_t peak_of(const std::vector<Way>& ways) {
  uint64_t resident = 0, peak = 0;
  for (const Way& w : ways) {  // those that stay are loaded first, one after the other
    if (w.placement != Placement::resident) continue;
    peak = std::max(peak, resident + w.loading);
    resident += w.held;
  }
  for (const Way& w : ways)
    peak = std::max(peak, resident + (w.placement == Placement::resident ? w.compute : w.own()));
  return peak;
}

class Search {
 public:
  Search(Needs needs, const Limits& limits, const MemoryOptions& options)
      : needs_(std::move(needs)), limits_(limits), options_(options) {
    reserve_ = reserve_of(options, limits.device_memory);
    budget_ = limits.device_memory - std::min(reserve_, limits.device_memory);
    uint64_t files = 0;
    for (const PartNeeds& p : needs_.parts) files += p.file_bytes;
    rate_ = files > limits.host_memory ? kDisk : limits.is_cpu ? kHostMemory : kLink;
    files_cached_ = files <= limits.host_memory;
  }

  Result<Decision> run() {
    batches_ = {needs_.batch};
    for (int b = needs_.batch / 2; b >= 1; b /= 2) batches_.push_back(b);
    tiles_ = tile_sides();
    Candidate best;
    best.peak = kUnlimited;
    // The usual case first: nothing has to give way, nothing else is measured.
    if (options_.offload == Offload::automatic || options_.offload == Offload::none) {
      DQ_TRY(best, whole(batches_[0], tiles_[0]));
    }
    for (size_t i = 1; best.peak > budget_ && best.peak != kUnlimited && i < tiles_.size(); ++i) {
      DQ_TRY(best, whole(batches_[0], tiles_[i]));
    }
    if (best.peak > budget_) {
      best = {};
      DQ_CHECK(add_choices());
      if (options_.offload == Offload::none) {
        for (size_t choice = 0; choice < most_choices(); ++choice)
          for (const int batch : batches_)
            for (const int tile : tiles_) {
              if (std::isfinite(best.cost)) break;
              DQ_TRY(Candidate c, whole(batch, tile, choice));
              if (c.peak <= budget_) best = std::move(c);
            }
      } else {
        for (const int batch : batches_)
          for (const int tile : tiles_) DQ_CHECK(consider(batch, tile, best));
      }
    }
    if (!std::isfinite(best.cost)) return too_small();
    return decision(best);
  }

 private:
  std::vector<int> tile_sides() const {
    std::vector<int> sides;
    const int side = needs_.latent_side;
    if (options_.vae_tiling != VaeTiling::on) sides.push_back(0);
    if (options_.vae_tiling == VaeTiling::off) return sides;
    const int first = options_.vae_tiling == VaeTiling::on ? std::min(kGivenTile, std::max(1, side / 2)) : side - 1;
    if (options_.vae_tiling == VaeTiling::on) sides.push_back(first);
    for (const int t : kTiles)
      if (t <= first && (sides.empty() || sides.back() != t)) sides.push_back(t);
    return sides;
  }

  bool allows(const PartNeeds& part, Placement p) const {
    switch (options_.offload) {
      case Offload::none: return p == Placement::resident;
      case Offload::component: return p == Placement::offload;
      case Offload::stream: return p == (part.choices[0].sizes.groups.empty() ? Placement::offload : Placement::stream);
      case Offload::automatic: break;
    }
    return p != Placement::stream || !part.choices[0].sizes.groups.empty();
  }

  Result<uint64_t> compute(size_t part, size_t choice, int batch, int tile) {
    const PartNeeds& p = needs_.parts[part];
    const auto key = std::tuple(part, choice, p.part == Part::transformer ? batch : 0, takes_tiles(p.part) ? tile : 0);
    if (const auto it = computed_.find(key); it != computed_.end()) return it->second;
    DQ_TRY(const uint64_t bytes, needs_.compute_bytes(p.part, p.choices[choice].policy, batch, tile));
    computed_.emplace(key, bytes);
    return bytes;
  }

  /// The way of a part under `budget`; nothing when it does not fit. cost: seconds for each picture.
  Result<std::optional<Way>> way(size_t part, size_t choice, Placement placement, int batch, int tile,
                                 uint64_t budget) {
    const PartNeeds& p = needs_.parts[part];
    const WeightChoice& c = p.choices[choice];
    Way w{choice, placement};
    DQ_TRY(w.compute, compute(part, choice, batch, tile));
    const int groups = static_cast<int>(c.sizes.groups.size());
    w.cost = kLossCost[std::clamp(c.loss, 0, 2)];
    if (placement != Placement::stream) {
      w.held = c.sizes.device_bytes(Residency::whole, 0);
      w.loading = c.sizes.loading_bytes(Residency::whole, 0);
      if (placement == Placement::offload) w.cost += static_cast<double>(p.file_bytes) / rate_ / batch;
      if (w.own() > budget) return std::optional<Way>();
      return std::optional(w);
    }
    const auto own = [&](int resident) {
      return std::max(c.sizes.loading_bytes(Residency::streamed, resident),
                      c.sizes.device_bytes(Residency::streamed, resident) + w.compute);
    };
    if (own(0) > budget) return std::optional<Way>();
    int low = 0, high = groups;  // the most layers that stay; more of them never take less
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (own(middle) <= budget)
        low = middle;
      else
        high = middle - 1;
    }
    w.held = c.sizes.device_bytes(Residency::streamed, low);
    w.loading = c.sizes.loading_bytes(Residency::streamed, low);
    for (int i = low = c.sizes.resident(Residency::streamed, low); i < groups; ++i)
      w.streamed += c.sizes.groups[static_cast<size_t>(i)];
    w.resident_groups = low;
    const double share = c.sizes.total ? static_cast<double>(w.streamed) / static_cast<double>(c.sizes.total) : 0;
    const double file = static_cast<double>(p.file_bytes);  // a quantised copy is made anew from the file each time
    // The next layer is copied while one computes; only a language model that writes token by token has nothing to hide
    // the copies behind, and a disk is slower than the computation.
    const double seen = p.part == Part::enhancer || !files_cached_ ? 1 : kVisibleCopies;
    w.cost += (file * (1 - share) + seen * file * share * static_cast<double>(p.passes)) / rate_ / batch;
    return std::optional(w);
  }

  Result<void> add_choices() {
    if (!needs_.further_choices) return {};
    for (PartNeeds& p : needs_.parts) {
      DQ_TRY(std::vector<WeightChoice> more, needs_.further_choices(p));
      for (WeightChoice& c : more) p.choices.push_back(std::move(c));
    }
    return {};
  }

  size_t most_choices() const {
    size_t n = 0;
    for (const PartNeeds& p : needs_.parts) n = std::max(n, p.choices.size());
    return n;
  }

  /// Everything resident; choice 0 is as stored.
  Result<Candidate> whole(int batch, int tile, size_t choice = 0) {
    Candidate c{batch, tile};
    for (size_t i = 0; i < needs_.parts.size(); ++i) {
      const size_t k = std::min(choice, needs_.parts[i].choices.size() - 1);
      DQ_TRY(const std::optional<Way> w, way(i, k, Placement::resident, batch, tile, kUnlimited));
      c.ways.push_back(*w);
    }
    c.peak = peak_of(c.ways);
    c.cost = 0;
    return c;
  }

  /// Every part takes its turn, in the cheapest way that fits; they do not depend on each other.
  Result<void> consider(int batch, int tile, Candidate& best) {
    Candidate c{batch, tile};
    DQ_TRY(c.cost, penalty(batch, tile));
    for (size_t i = 0; i < needs_.parts.size(); ++i) {
      std::optional<Way> cheapest;
      for (size_t k = 0; k < needs_.parts[i].choices.size(); ++k)
        for (const Placement p : {Placement::offload, Placement::stream}) {
          if (!allows(needs_.parts[i], p)) continue;
          DQ_TRY(const std::optional<Way> w, way(i, k, p, batch, tile, budget_));
          if (w && (!cheapest || w->cost < cheapest->cost)) cheapest = w;
        }
      if (!cheapest) return {};
      c.cost += cheapest->cost;
      if (c.cost >= best.cost) return {};
      c.ways.push_back(*cheapest);
    }
    c.peak = peak_of(c.ways);
    best = std::move(c);
    return {};
  }

  Result<double> penalty(int batch, int tile) const {
    int64_t passes = 0;
    for (const PartNeeds& p : needs_.parts)
      if (p.part == Part::transformer) passes = p.passes;
    double cost = kBatchCost * std::log2(static_cast<double>(needs_.batch) / batch) * static_cast<double>(passes);
    if (tile > 0 && needs_.tile_work) {
      DQ_TRY(const double work, needs_.tile_work(tile));
      cost += kDecode * std::max(0.01, work - 1);
    }
    return cost;
  }

  /// The device memory that holds `peak` with the reserve beside it.
  uint64_t memory_for(uint64_t peak) const {
    if (options_.reserve) return peak + *options_.reserve;
    const auto tenth = static_cast<uint64_t>(std::ceil(static_cast<double>(peak) / 9.0));
    return peak + std::min(tenth + 1, kMostReserve);
  }

  /// No way fits: says what the least demanding one needs.
  Result<Decision> too_small() {
    uint64_t least = 0;
    size_t largest = 0;
    for (size_t i = 0; i < needs_.parts.size(); ++i) {
      uint64_t own = kUnlimited;
      for (size_t k = 0; k < needs_.parts[i].choices.size(); ++k)
        for (const Placement p : {Placement::resident, Placement::offload, Placement::stream}) {
          if (!allows(needs_.parts[i], p)) continue;
          DQ_TRY(const uint64_t bytes, compute(i, k, batches_.back(), tiles_.back()));
          const WeightSizes& s = needs_.parts[i].choices[k].sizes;
          const Residency r = p == Placement::stream ? Residency::streamed : Residency::whole;
          own = std::min(own, std::max(s.loading_bytes(r, 0), s.device_bytes(r, 0) + bytes));
        }
      if (options_.offload == Offload::none)
        least += own;
      else if (own > least)
        least = own, largest = i;
    }
    const std::string part =
        options_.offload == Offload::none ? "all components at once" : std::string(role(needs_.parts[largest].part));
    std::string advice = fmt::format("--device-memory {} or more", format_bytes(memory_for(least)));
    if (options_.offload == Offload::none || options_.offload == Offload::component) advice += ", --offload auto";
    if (options_.vae_tiling == VaeTiling::off) advice += ", --vae-tiling auto";
    advice += ", a smaller --size or fewer pictures in a batch";
    return fail(ErrorCode::does_not_fit,
                "[plan] expected {} of device memory ({} for {}, besides a reserve of {}), got {} on {}: needs {}",
                format_bytes(memory_for(least)), format_bytes(least), part, format_bytes(reserve_),
                format_bytes(limits_.device_memory), limits_.device, advice);
  }

  Result<Decision> decision(const Candidate& c) {
    Decision d;
    MemoryPlan& plan = d.plan;
    plan.batch_size = c.batch;
    plan.vae_tile = c.tile;
    plan.device_memory = limits_.device_memory;
    plan.reserve = reserve_;
    plan.device_peak = c.peak;
    plan.device = limits_.device;
    if (needs_.host_bytes) {
      DQ_TRY(plan.host_peak, needs_.host_bytes(c.batch, c.tile));
    }
    bool offloads = false, streams = false, loses = false;
    for (size_t i = 0; i < c.ways.size(); ++i) {
      const Way& w = c.ways[i];
      const PartNeeds& p = needs_.parts[i];
      const WeightChoice& choice = p.choices[w.choice];
      ComponentPlan part;
      part.role = role(p.part);
      part.placement = w.placement;
      part.types = types_text(choice.sizes);
      part.quantized_on_load = choice.loss > 0;
      part.file_bytes = p.file_bytes;
      part.weight_bytes = choice.sizes.total;
      part.held_bytes = w.held;
      part.compute_bytes = w.compute;
      part.streamed_bytes = w.streamed;
      if (w.placement == Placement::stream) {
        part.layers = static_cast<int>(choice.sizes.groups.size());
        part.resident_layers = w.resident_groups;
      }
      const auto slot = static_cast<size_t>(p.part);
      d.policies[slot] = choice.policy;
      d.policies[slot].residency = w.placement == Placement::stream ? Residency::streamed : Residency::whole;
      d.policies[slot].resident_groups = w.resident_groups;
      d.used[slot] = true;
      d.keep[slot] = w.placement == Placement::resident;
      offloads |= w.placement == Placement::offload;
      streams |= w.placement == Placement::stream;
      loses |= choice.loss > 0;
      if (w.placement != Placement::resident) plan.host_files += p.file_bytes;
      plan.disk_reads += p.file_bytes;
      if (choice.loss > 0)
        plan.notes.push_back(fmt::format("the {} is quantised to {} while it is loaded", part.role,
                                         name(choice.policy.matrix.value_or(DType::q8_0))));
      plan.components.push_back(std::move(part));
    }
    plan.mode = streams ? "layer streaming" : offloads ? "component offload" : "whole";
    if (c.batch < needs_.batch)
      plan.notes.push_back(fmt::format("{} pictures at once instead of {}", c.batch, needs_.batch));
    if (!files_cached_ && plan.host_files > 0)
      plan.notes.push_back(
          fmt::format("the files ({}) are larger than the host's memory ({}): they are read from disk "
                      "each time",
                      format_bytes(plan.host_files), format_bytes(limits_.host_memory)));
    DQ_CHECK(add_better(c, streams || loses, offloads, plan));
    return d;
  }

  /// What would be better still, and from how much memory on.
  Result<void> add_better(const Candidate& c, bool gives_more, bool offloads, MemoryPlan& plan) {
    if (options_.offload == Offload::automatic && gives_more) {
      uint64_t peak = 0;
      for (size_t i = 0; i < needs_.parts.size(); ++i) {
        DQ_TRY(const std::optional<Way> w, way(i, 0, Placement::offload, c.batch, c.tile, kUnlimited));
        peak = std::max(peak, w->own());
      }
      plan.better = "component offload";
      plan.better_needs = memory_for(peak);
      if (plan.better_needs > limits_.device_memory) return {};
    }
    const bool reduced = c.batch < batches_[0] || c.tile != tiles_[0];
    if (options_.offload == Offload::automatic && (gives_more || offloads || reduced)) {
      DQ_TRY(const Candidate all, whole(reduced && !offloads && !gives_more ? batches_[0] : c.batch,
                                        reduced && !offloads && !gives_more ? tiles_[0] : c.tile));
      plan.better = offloads || gives_more ? "whole" : "whole, without smaller tiles or batches";
      plan.better_needs = memory_for(all.peak);
    }
    return {};
  }

  static std::string types_text(const WeightSizes& sizes) {
    std::vector<std::pair<uint64_t, DType>> types;
    for (const auto& [type, bytes] : sizes.by_dtype) types.emplace_back(bytes, type);
    std::sort(types.begin(), types.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    std::string text;
    for (const auto& [bytes, type] : types) text += (text.empty() ? "" : " + ") + std::string(name(type));
    return text;
  }

  static constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();
  Needs needs_;
  const Limits& limits_;
  const MemoryOptions& options_;
  uint64_t reserve_ = 0, budget_ = 0;
  double rate_ = kLink;
  bool files_cached_ = true;
  std::vector<int> batches_, tiles_;
  std::map<std::tuple<size_t, size_t, int, int>, uint64_t> computed_;
};

}  // namespace

std::string_view role(Part part) {
  switch (part) {
    case Part::enhancer: return "pe";
    case Part::text_encoder: return "text_encoder";
    case Part::vae_encoder: return "vae_encoder";
    case Part::transformer: return "transformer";
    case Part::vae: return "vae";
  }
  return "";
}

uint64_t reserve_of(const MemoryOptions& options, uint64_t device_memory) {
  return options.reserve.value_or(std::min(device_memory / 10, kMostReserve));
}

Result<Decision> decide(Needs needs, const Limits& limits, const MemoryOptions& options) {
  return Search(std::move(needs), limits, options).run();
}

}  // namespace danqing::memory
