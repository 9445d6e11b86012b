// What families have in common whose prompts go through a text stack and whose latents through a VAE.
#pragma once
#include <utility>

#include "models/mistral3/model.h"
#include "models/vae/vae.h"
#include "pipeline/family.h"

namespace danqing {

class StandardFamily : public ModelFamily {
 public:
  const ModelInfo& info() const override { return info_; }
  const FlowMatchConfig& scheduler() const override { return scheduler_; }
  WorkType decode_type() const override { return work_type(ctx_.compute_type); }
  int vae_scale() const override { return static_cast<int>(vae_config_.scale()); }
  Result<TileCost> vae_tile_cost(int width, int height, int vae_tile, bool also_encodes) override;
  /// The text encoder and the VAE's halves; a family adds its own.
  ComponentSlot* slot(memory::Part part) override;
  Result<uint64_t> compute_bytes(memory::Part part, const WeightPolicy& policy, const Workload& work,
                                 int vae_tile) override;
  Result<Tensor> decode(const Tensor& latents, const StageControl& control) override;
  bool takes_image() const override { return has_encoder_; }
  Result<EncodedImage> encode_image(const Tensor& picture, const StageControl& control) override;

 protected:
  explicit StandardFamily(FamilyContext context) : ctx_(std::move(context)) {}
  /// The slot of a component that the checkpoint has; load(device, files, policy, progress) makes the network.
  template <class T, class Load>
  Slot<T> slot_of(const char* role, Load load) const {
    const ComponentFiles& files = *ctx_.checkpoint.find(role);
    return {files, weight_policy(files, ctx_.compute_type),
            [device = ctx_.device, load](const ComponentFiles& f, const WeightPolicy& policy,
                                         const LoadProgress& progress) { return load(device, f, policy, progress); }};
  }
  /// Adapters of another model are named when the model is opened, not when its weights are first needed.
  template <class T>
  Result<void> check_adapters(Slot<T>& transformer) const {
    if (ctx_.checkpoint.find("transformer")->adapters.empty()) return {};
    DQ_TRY([[maybe_unused]] const T* network, transformer.described(transformer.base_policy()));
    return {};
  }
  /// Sets up both halves of the VAE, whose config is read.
  void open_vae();

  FamilyContext ctx_;
  ModelInfo info_;
  vae::Config vae_config_;
  FlowMatchConfig scheduler_;
  Slot<mistral3::TextEncoder> text_encoder_;
  Slot<vae::Vae> vae_encoder_, vae_;

 private:
  Slot<vae::Vae> vae_slot(vae::Part part) const;
  vae::Tiling tiling(int side) const { return {side, vae_host_memory_}; }
  bool has_encoder_ = false;
};

}  // namespace danqing
