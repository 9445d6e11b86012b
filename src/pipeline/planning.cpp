#include "pipeline/planning.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/try.h"
#include "device/host.h"

namespace danqing {
namespace {

using memory::Part;

constexpr uint64_t kLeastTileMemory = uint64_t{768} << 20, kMostTileMemory = uint64_t{8} << 30;

constexpr size_t kMostCached = 4096;

/// The types that `--weight-type` and the planner quantise to, the gentlest first.
constexpr DType kQuantized[] = {DType::q8_0, DType::q4_k};

Result<std::optional<DType>> asked_type(const std::string& word) {
  if (word == "auto" || word == "stored" || word.empty()) return std::optional<DType>();
  const std::optional<DType> t = dtype_from_name(word);
  if (!t || !(is_quantized(*t) || *t == DType::f32 || *t == DType::bf16 || *t == DType::f16))
    return usage_error(
        "[--weight-type] expected auto, stored, f32, bf16, f16 or a quantised type such as q8_0 or "
        "q4_K, got '{}'",
        word);
  return t;
}

/// How a part's weights are kept if memory allows: as stored, or in the type that was asked for. The VAE is small and
/// sensitive: always as it is.
Result<memory::WeightChoice> first_choice(ComponentSlot& slot, Part part, std::optional<DType> asked) {
  WeightPolicy policy = slot.base_policy();
  if (asked && !memory::takes_tiles(part)) policy.matrix = asked;
  DQ_TRY(WeightSizes sizes, slot.sizes(policy));
  return memory::WeightChoice{policy, std::move(sizes), asked && is_quantized(*asked) ? 1 : 0};
}

/// Quantised ones, where they save a tenth at least.
Result<std::vector<memory::WeightChoice>> smaller_choices(ComponentSlot& slot, Part part, uint64_t plain) {
  std::vector<memory::WeightChoice> list;
  if (memory::takes_tiles(part)) return list;
  for (const DType t : kQuantized) {
    WeightPolicy p = slot.base_policy();
    p.matrix = t;
    DQ_TRY(WeightSizes smaller, slot.sizes(p));
    if (smaller.total < plain * 9 / 10) list.push_back({p, std::move(smaller), t == DType::q8_0 ? 1 : 2});
  }
  return list;
}

uint64_t file_bytes(const ComponentSlot& slot) {
  uint64_t bytes = 0;
  for (const TensorInfo& t : slot.files().source->tensors()) bytes += t.bytes;
  return bytes;
}

/// The texts of each group of pictures that are denoised together, each combination once.
std::vector<Workload> groups(const JobShape& job, int batch) {
  std::vector<Workload> list;
  std::set<std::vector<int64_t>> seen;
  const size_t n = job.text_tokens.size();
  for (size_t first = 0; first < n; first += static_cast<size_t>(batch)) {
    const size_t end = std::min(n, first + static_cast<size_t>(batch));
    const auto part = [&](const std::vector<int64_t>& all) {
      return all.empty() ? std::vector<int64_t>()
                         : std::vector<int64_t>(all.begin() + static_cast<std::ptrdiff_t>(first),
                                                all.begin() + static_cast<std::ptrdiff_t>(end));
    };
    Workload w{job.width, job.height, part(job.text_tokens), part(job.negative_tokens)};
    std::vector<int64_t> key = w.text_tokens;
    key.insert(key.end(), w.negative_tokens.begin(), w.negative_tokens.end());
    if (seen.insert(key).second) list.push_back(std::move(w));
  }
  return list;
}

}  // namespace

memory::Limits memory_limits(const Device& device, const MemoryOptions& options) {
  const host::Memory host = host::memory();
  memory::Limits limits;
  limits.is_cpu = device.is_cpu();
  limits.device = device.info().name;
  limits.host_memory = options.host_memory ? options.host_memory : host.available;
  limits.device_memory = options.device_memory;
  if (!limits.device_memory) limits.device_memory = device.memory_free() + device.allocated();
  return limits;
}

Result<memory::Decision> plan_job(ModelFamily& family, const memory::Limits& limits, const MemoryOptions& options,
                                  const JobShape& job, PlanCache* cache) {
  memory::Needs needs;
  needs.batch = std::max(1, job.batch);
  const Shape latents = family.latent_shape(job.width, job.height);
  const int scale = family.vae_scale();
  needs.latent_side = std::max(job.width, job.height) / scale;
  DQ_TRY(const std::optional<DType> asked, asked_type(options.weight_type));
  for (const Part part : memory::kParts) {
    ComponentSlot* slot = family.slot(part);
    if (!slot || (part == Part::enhancer && job.enhancer_prompt == 0) || (part == Part::text_encoder && !job.encodes) ||
        (part == Part::vae_encoder && !job.starts_from_image) ||
        (!job.draws && (part == Part::transformer || part == Part::vae)))
      continue;
    memory::PartNeeds p{part};
    DQ_TRY(memory::WeightChoice first, first_choice(*slot, part, asked));
    // The VAE's file is counted with its decoder; beside that its encoder reads its own part.
    p.file_bytes = part == Part::vae_encoder ? first.sizes.total : file_bytes(*slot);
    p.choices.push_back(std::move(first));
    if (part == Part::enhancer) p.passes = job.enhancer_new;
    if (part == Part::text_encoder) p.passes = job.negative_tokens.empty() ? 1 : 2;
    if (part == Part::transformer) p.passes = std::max<int64_t>(1, job.passes);
    needs.parts.push_back(std::move(p));
  }
  if (options.weight_type == "auto")
    needs.further_choices = [&](const memory::PartNeeds& p) {
      return smaller_choices(*family.slot(p.part), p.part, p.choices[0].sizes.total);
    };
  needs.compute_bytes = [&](Part part, const WeightPolicy& policy, int batch, int tile) -> Result<uint64_t> {
    std::vector<Workload> work;
    if (part == Part::transformer) {
      work = groups(job, batch);
    } else {
      work.push_back(
          {job.width, job.height, job.text_tokens, job.negative_tokens, job.enhancer_prompt, job.enhancer_new});
    }
    uint64_t most = 0;
    for (const Workload& w : work) {
      const std::string key = fmt::format("{} {} {}x{} {} {} {} {} {}", memory::role(part),
                                          policy.matrix ? static_cast<int>(*policy.matrix) : -1, w.width, w.height,
                                          tile, fmt::join(w.text_tokens, ","), fmt::join(w.negative_tokens, ","),
                                          w.enhancer_prompt, w.enhancer_new);
      if (const auto known = cache ? cache->find(key) : PlanCache::iterator(); cache && known != cache->end()) {
        most = std::max(most, known->second);
        continue;
      }
      DQ_TRY(const uint64_t bytes, family.compute_bytes(part, policy, w, tile));
      if (cache && cache->size() >= kMostCached) cache->clear();
      if (cache) cache->emplace(key, bytes);
      most = std::max(most, bytes);
    }
    if (part == Part::transformer && job.calibrates) {
      const int side = kPreviewCut * family.info().size_multiple;
      DQ_TRY(const uint64_t cut, family.compute_bytes(Part::vae, family.slot(Part::vae)->base_policy(),
                                                      {std::min(side, job.width), std::min(side, job.height)}, 0));
      most += cut;
    }
    return most;
  };
  const auto pixels = static_cast<uint64_t>(job.width) * static_cast<uint64_t>(job.height);
  family.set_vae_host_memory(std::clamp(limits.host_memory / 4, kLeastTileMemory, kMostTileMemory));
  needs.tile_work = [&](int tile) -> Result<double> {
    if (!job.draws) return 1.0;
    DQ_TRY(const ModelFamily::TileCost cost, family.vae_tile_cost(job.width, job.height, tile, job.starts_from_image));
    return cost.repeated_work;
  };
  needs.host_bytes = [&, pixels](int batch, int tile) -> Result<uint64_t> {
    const auto latent_bytes = static_cast<uint64_t>(element_count(latents)) * 4;
    // The sampler's copies of a group's latents; a decoded picture in f32, as bytes and packed for the file.
    uint64_t bytes = 6 * latent_bytes * static_cast<uint64_t>(batch) + pixels * 3 * (4 + 1 + 1);
    if (job.starts_from_image) bytes += pixels * 3 * (4 + 1) + 3 * latent_bytes;  // the given one, its distribution
    if (tile > 0) {
      DQ_TRY(const ModelFamily::TileCost cost,
             family.vae_tile_cost(job.width, job.height, tile, job.starts_from_image));
      bytes += cost.host_bytes;
    }
    return bytes;
  };
  DQ_TRY(memory::Decision d, memory::decide(std::move(needs), limits, options));
  d.plan.width = job.width;
  d.plan.height = job.height;
  for (const auto* lengths : {&job.text_tokens, &job.negative_tokens})
    for (const int64_t n : *lengths) d.plan.text_tokens = std::max(d.plan.text_tokens, static_cast<int>(n));
  return d;
}

void apply(const memory::Decision& decision, ModelFamily& family) {
  for (const Part part : memory::kParts)
    if (const auto i = static_cast<size_t>(part); decision.used[i]) family.slot(part)->keep_as(decision.policies[i]);
  family.set_vae_tile(decision.plan.vae_tile);
}

}  // namespace danqing
