#include "pipeline/standard_family.h"

#include "base/try.h"

namespace danqing {

Result<ModelFamily::TileCost> StandardFamily::vae_tile_cost(int width, int height, int vae_tile) {
  DQ_TRY(vae::Vae * v, vae_.described(vae_.base_policy()));
  const int64_t h = height / vae_config_.scale(), w = width / vae_config_.scale();
  TileCost cost;
  DQ_TRY(cost.host_bytes, v->host_bytes_decode(h, w, tiling(vae_tile)));
  DQ_TRY(cost.repeated_work, v->repeated_work(h, w, tiling(vae_tile)));
  return cost;
}

ComponentSlot* StandardFamily::slot(memory::Part part) {
  if (part == memory::Part::text_encoder) return &text_encoder_;
  return part == memory::Part::vae ? &vae_ : nullptr;
}

Result<uint64_t> StandardFamily::compute_bytes(memory::Part part, const WeightPolicy& policy, const Workload& work,
                                               int vae_tile) {
  if (part == memory::Part::text_encoder) {
    DQ_TRY(mistral3::TextEncoder * e, text_encoder_.described(policy));
    return e->measure(1, longest(work));
  }
  if (part != memory::Part::vae) return uint64_t{0};
  DQ_TRY(vae::Vae * v, vae_.described(policy));
  return v->measure_decode(1, work.height / vae_config_.scale(), work.width / vae_config_.scale(), tiling(vae_tile));
}

Result<Tensor> StandardFamily::decode(const Tensor& latents, const StageControl& control) {
  DQ_TRY(const Tensor z, vae_latents(latents, control));
  if (control.taps) control.taps("vae_input", z);
  DQ_TRY(vae::Vae * v, vae_.get(control.on_load));
  return v->decode(z, tiling(vae_tile_), control.taps, control.cancelled);
}

Slot<vae::Vae> StandardFamily::vae_slot() const {
  return slot_of<vae::Vae>("vae", [](std::shared_ptr<Device> device, const ComponentFiles& files,
                                     const WeightPolicy& policy, const LoadProgress& progress) {
    return vae::Vae::load(std::move(device), files, vae::Part::decoder, policy, progress);
  });
}

}  // namespace danqing
