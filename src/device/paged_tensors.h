// Tensors of which a graph is built although their values are not, or not always, in memory. Between Weights, which
// make them, and Runner, which asks for them. Not for other layers.
#pragma once
#include <ggml.h>

#include <memory>
#include <unordered_set>
#include <vector>

#include "danqing/result.h"
#include "device/device.h"
#include "device/pages.h"

namespace danqing {

/// Enters its device for as long as it lives. Thread rule: the device's.
class PagedTensors {
 public:
  explicit PagedTensors(Device& device) : device_(device) { device_.paged().push_back(this); }
  virtual ~PagedTensors() { std::erase(device_.paged(), this); }
  PagedTensors(const PagedTensors&) = delete;
  PagedTensors& operator=(const PagedTensors&) = delete;

  static constexpr int kNever = -2;  ///< described only
  static constexpr int kOther = -1;  ///< always there, or not of these
  /// A group from 0 on, or one of the above.
  virtual int group_of(const ggml_tensor* t) const = 0;
  /// Waits until the values of a group are there; they stay until release(). One group at a time. Errors: bad_input
  /// (the file), does_not_fit.
  virtual Result<void> acquire(int group) = 0;
  virtual void release(int group) = 0;
  /// Has a group read in the background if there is a free place for it. Never waits.
  virtual void prefetch(int group) = 0;

 protected:
  Device& device_;
};

/// Tensors that get addresses and no memory.
class DescribedTensors : public PagedTensors {
 public:
  static Result<std::unique_ptr<DescribedTensors>> create(Device& device, const std::vector<ggml_tensor*>& tensors);
  ~DescribedTensors() override;
  int group_of(const ggml_tensor* t) const override { return tensors_.count(t) ? kNever : kOther; }
  Result<void> acquire(int group) override;  ///< always an Error
  void release(int) override {}
  void prefetch(int) override {}

 private:
  DescribedTensors(Device& device, uint64_t bytes) : PagedTensors(device), range_(bytes) {}
  pages::AddressRange range_;
  ggml_backend_buffer_t buffer_ = nullptr;
  std::unordered_set<const ggml_tensor*> tensors_;
};

}  // namespace danqing
