// A chain run tile by tile with the statistics and the attention of the whole picture.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "models/vae/schedule.h"

namespace danqing::vae {

class TiledRun {
 public:
  /// One picture of h x w latents. The network must outlive the run.
  TiledRun(const Network& n, std::shared_ptr<Device> device, int64_t h, int64_t w, const Tiling& tiling);

  /// Pictures [C, H, W] at the ends of the chain; `y` is asked for room when the last pass begins. Errors:
  /// does_not_fit, cancelled, device_lost.
  Result<void> run(const float* x, const std::function<float*()>& y, const std::function<bool()>& cancelled,
                   const TileProgress& progress);
  /// The most that run() has on the device at one time; allocates nothing there.
  Result<size_t> measure();
  /// The most that run() has in host memory beside x and y: pictures between passes, and the tiles in hand.
  size_t host_bytes() const;
  const Schedule& schedule() const { return schedule_; }

 private:
  /// Tiles along one axis whose graphs are alike.
  struct Group {
    Way example;
    std::vector<Interval> latents;
    std::vector<Way> ways;
  };
  struct Call;
  std::vector<Group> groups(const Pass& p, int64_t latents) const;
  Result<void> tiles(const Pass& p, Call& call);
  Result<void> attention(const Pass& p, Call& call);
  std::vector<State::Entry> cache(size_t layer) const;
  int64_t pixels() const { return h_ * w_; }
  int64_t keys_at_once() const;
  int64_t queries_at_once(int64_t channels) const;

  Network n_;
  std::shared_ptr<Device> device_;
  int64_t h_, w_, tile_;
  Schedule schedule_;
};

}  // namespace danqing::vae
