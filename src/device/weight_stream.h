// Groups of weights (layers) that share two places: one is computed with while a thread fills the other.
// Groups take the places in turn, by number, so that a pass over an even number of them never waits for a free place;
// of an odd number, the last and the first have the same place, and the first is filled when the last is done.
#pragma once
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "device/paged_tensors.h"
#include "device/weight_items.h"

namespace danqing {

class WeightStream : public PagedTensors {
 public:
  /// Places `items`, the tensors of groups `first` and on, of which there are three at least. Reads nothing yet.
  /// Error does_not_fit.
  static Result<std::unique_ptr<WeightStream>> create(Device& device, std::shared_ptr<const TensorSource> source,
                                                      std::vector<WeightItem> items, int first);
  /// Waits for what is being filled, which stops soon.
  ~WeightStream() override;

  int group_of(const ggml_tensor* t) const override;
  Result<void> acquire(int group) override;
  void release(int group) override;
  void prefetch(int group) override;

 private:
  struct Group {
    std::vector<WeightItem> copied, mapped;
    std::vector<std::span<const std::byte>> ranges;  ///< of the mapped ones, joined
  };
  struct Place {
    std::vector<Device::Buffer> buffers;
    int holds = -1;   ///< the group whose values are there
    int wanted = -1;  ///< the group to be filled in
    int used = -1;    ///< the group that is computed with
    int formed = -1;  ///< the group after whose layout the buffers were last initialised
    int failed = -1;  ///< the group that could not be filled, and why
    std::optional<Error> error;
  };

  WeightStream(Device& device, std::shared_ptr<const TensorSource> source, int first);
  Result<void> lay_out(std::vector<WeightItem> items);
  Place& place_of(int group) { return places_[(group - first_) % 2]; }
  Group& group(int g) { return groups_[static_cast<size_t>(g - first_)]; }
  // With the mutex held:
  bool start();  ///< the thread, if it is not there; false: none is to be had
  void serve(Place& place,
             std::unique_lock<std::mutex>& lock);  ///< fills in what is wanted; gives the mutex up meanwhile
  void work();
  Result<void> fill_place(Place& place, int g, int before);
  static bool same_layout(const Group& a, const Group& b);

  std::shared_ptr<const TensorSource> source_;
  int first_ = 0;
  std::vector<Group> groups_;
  std::unordered_map<const ggml_tensor*, int> group_of_;
  std::vector<ggml_backend_buffer_t> views_;
  Device::Charge mapped_charge_, staging_charge_;
  Place places_[2];

  std::mutex mutex_;  ///< guards the places' numbers and errors, and stop_
  std::condition_variable changed_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace danqing
