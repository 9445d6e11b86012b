// What a job's parts take on a device under each way to keep them: the planner's input.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "danqing/result.h"
#include "device/weights.h"

namespace danqing::memory {

/// Networks of a pipeline, in the order in which a job runs them.
enum class Part { enhancer, text_encoder, vae_encoder, transformer, vae };
inline constexpr std::array<Part, 5> kParts{Part::enhancer, Part::text_encoder, Part::vae_encoder, Part::transformer,
                                            Part::vae};
std::string_view role(Part part);  ///< "pe", "text_encoder", "vae_encoder", "transformer", "vae"
/// Works in tiles when a picture is too large for it.
inline bool takes_tiles(Part part) { return part == Part::vae || part == Part::vae_encoder; }

/// One way to store a part's weights.
struct WeightChoice {
  WeightPolicy policy;  ///< its matrix type; residency is the planner's
  WeightSizes sizes;
  int loss = 0;  ///< 0 = as precise as asked, 1 = quantised to 8 bits or more, 2 = to fewer
};

struct PartNeeds {
  Part part = Part::transformer;
  std::vector<WeightChoice> choices;  ///< the preferred first; at least that one
  uint64_t file_bytes = 0;
  int64_t passes = 1;  ///< how often a job goes through all of its layers
};

struct Needs {
  std::vector<PartNeeds> parts;  ///< those that the job runs, in order
  int batch = 1;                 ///< pictures together, as asked
  int latent_side = 1;           ///< the longer side of the latents that the VAE gets
  /// Further choices for a part, from the gentlest on; asked for once and only when the first ones do not all fit,
  /// since each costs a network's description.
  std::function<Result<std::vector<WeightChoice>>(const PartNeeds&)> further_choices;
  /// Exact bytes beyond the weights while a part computes. `batch`: pictures together; `vae_tile`: 0 = whole.
  std::function<Result<uint64_t>(Part, const WeightPolicy&, int batch, int vae_tile)> compute_bytes;
  /// Bytes of host memory beside the files: latents, features, the picture. Same arguments.
  std::function<Result<uint64_t>(int batch, int vae_tile)> host_bytes;
  /// Operations of a decode in tiles for each one of a whole decode: 1 when whole.
  std::function<Result<double>(int vae_tile)> tile_work;
};

}  // namespace danqing::memory
