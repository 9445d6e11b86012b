// A network of a family that comes and goes as the memory plan says.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "base/try.h"
#include "checkpoint/checkpoint.h"
#include "device/weights.h"

namespace danqing {

/// What is the same for every network.
class ComponentSlot {
 public:
  virtual ~ComponentSlot() = default;
  const ComponentFiles& files() const { return *files_; }
  /// How the checkpoint and the asked dtype want it, whatever the memory.
  const WeightPolicy& base_policy() const { return base_; }
  const WeightPolicy& policy() const { return policy_; }  ///< as it is kept now
  /// From now on loaded this way; a network that is there in another way goes.
  void keep_as(const WeightPolicy& policy) {
    if (policy.matrix == policy_.matrix && policy.residency == policy_.residency &&
        policy.resident_groups == policy_.resident_groups)
      return;
    policy_ = policy;
    drop();
  }
  virtual bool loaded() const = 0;
  /// Errors: bad_input, does_not_fit, cancelled.
  virtual Result<void> load(const LoadProgress& progress) = 0;
  virtual void drop() = 0;     ///< weights and all
  virtual void release() = 0;  ///< compute buffers and caches
  /// Of the network kept in the policy's type; reads headers only.
  virtual Result<WeightSizes> sizes(const WeightPolicy& policy) = 0;

 protected:
  const ComponentFiles* files_ = nullptr;
  WeightPolicy base_, policy_;
};

/// T: weight_sizes(), release().
template <class T>
class Slot final : public ComponentSlot {
 public:
  using Make =
      std::function<Result<std::unique_ptr<T>>(const ComponentFiles&, const WeightPolicy&, const LoadProgress&)>;
  Slot() = default;
  Slot(const ComponentFiles& files, const WeightPolicy& policy, Make make) : make_(std::move(make)) {
    files_ = &files;
    base_ = policy_ = policy;
  }

  /// The network, loaded if it is not there.
  Result<T*> get(const LoadProgress& progress) {
    if (!loaded_) DQ_CHECK(load(progress));
    return loaded_.get();
  }
  T* get_if_loaded() const { return loaded_.get(); }
  /// The network without its weights, for measuring.
  Result<T*> described(WeightPolicy policy) {
    policy.residency = Residency::described;
    policy.resident_groups = 0;
    auto& entry = described_[policy.matrix];
    if (!entry) {
      DQ_TRY(entry, make_(*files_, policy, {}));
    }
    return entry.get();
  }

  bool loaded() const override { return loaded_ != nullptr; }
  Result<void> load(const LoadProgress& progress) override {
    if (loaded_) return {};
    DQ_TRY(loaded_, make_(*files_, policy_, progress));
    return {};
  }
  void drop() override { loaded_.reset(); }
  void release() override {
    if (loaded_) loaded_->release();
  }
  Result<WeightSizes> sizes(const WeightPolicy& policy) override {
    DQ_TRY(T * network, described(policy));
    return network->weight_sizes();
  }

 private:
  Make make_;
  std::unique_ptr<T> loaded_;
  std::map<std::optional<DType>, std::unique_ptr<T>> described_;
};

}  // namespace danqing
