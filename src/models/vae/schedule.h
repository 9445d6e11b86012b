// In which passes a tiled run goes through a chain. Each group norm needs the statistics of the whole picture before
// anything behind it can be computed, so every norm ends a pass over all tiles. A pass begins at the last picture that
// was kept in host memory; which pictures are kept is chosen so that the fewest multiply-adds are done in a given
// amount of memory.
#pragma once
#include <vector>

#include "models/vae/graph.h"

namespace danqing::vae {

/// One pass over all tiles, or (attention) over all pixels.
struct Pass {
  Segment segment;
  int64_t tile = 0;        ///< side in latents
  bool attention = false;  ///< segment.from is the layer; its picture is replaced by the result
  bool in_place = false;   ///< the result replaces the picture kept at `from`
  double work = 0;         ///< multiply-adds
};

struct Schedule {
  std::vector<Pass> passes;
  uint64_t kept_bytes = 0;  ///< the most that pictures between passes take at one time
  double work() const;
};

/// Tiles of `tile` latents a side where the pictures are largest, of pictures of h x w latents; passes that stay where
/// they are smaller take larger tiles of about as many values. `memory`: for the pictures kept; where it is not enough
/// for any schedule, the one that needs least.
Schedule make_schedule(const Chain& chain, int64_t h, int64_t w, int64_t tile, uint64_t memory);

/// Intervals of `latents` in tiles of at most `tile`, as equal as can be, the longer ones first.
std::vector<Interval> cut_axis(int64_t latents, int64_t tile);

}  // namespace danqing::vae
