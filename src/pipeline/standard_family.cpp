#include "pipeline/standard_family.h"

#include <algorithm>

#include "base/try.h"

namespace danqing {

Result<ModelFamily::TileCost> StandardFamily::vae_tile_cost(int width, int height, int vae_tile, bool also_encodes) {
  DQ_TRY(vae::Vae * v, vae_.described(vae_.base_policy()));
  const int64_t h = height / vae_config_.scale(), w = width / vae_config_.scale();
  TileCost cost;
  DQ_TRY(cost.host_bytes, v->host_bytes_decode(h, w, tiling(vae_tile)));
  DQ_TRY(cost.repeated_work, v->repeated_work(h, w, tiling(vae_tile)));
  if (also_encodes) {
    DQ_TRY(vae::Vae * e, vae_encoder_.described(vae_encoder_.base_policy()));
    DQ_TRY(const size_t bytes, e->host_bytes_encode(h, w, tiling(vae_tile)));
    cost.host_bytes = std::max(cost.host_bytes, bytes);
  }
  return cost;
}

ComponentSlot* StandardFamily::slot(memory::Part part) {
  switch (part) {
    case memory::Part::text_encoder: return &text_encoder_;
    case memory::Part::vae_encoder: return has_encoder_ ? &vae_encoder_ : nullptr;
    case memory::Part::vae: return &vae_;
    default: return nullptr;
  }
}

Result<uint64_t> StandardFamily::compute_bytes(memory::Part part, const WeightPolicy& policy, const Workload& work,
                                               int vae_tile) {
  const int64_t h = work.height / vae_config_.scale(), w = work.width / vae_config_.scale();
  switch (part) {
    case memory::Part::text_encoder: {
      DQ_TRY(mistral3::TextEncoder * e, text_encoder_.described(policy));
      return e->measure(1, longest(work));
    }
    case memory::Part::vae_encoder: {
      DQ_TRY(vae::Vae * v, vae_encoder_.described(policy));
      return v->measure_encode(1, h, w, tiling(vae_tile));
    }
    case memory::Part::vae: {
      DQ_TRY(vae::Vae * v, vae_.described(policy));
      return v->measure_decode(1, h, w, tiling(vae_tile));
    }
    default: return uint64_t{0};
  }
}

Result<Tensor> StandardFamily::decode(const Tensor& latents, const StageControl& control) {
  DQ_TRY(const Tensor z, vae_latents(latents, control));
  if (control.taps) control.taps("vae_input", z);
  DQ_TRY(vae::Vae * v, vae_.get(control.on_load));
  return v->decode(z, tiling(vae_tile_), control.taps, control.cancelled);
}

Result<EncodedImage> StandardFamily::encode_image(const Tensor& picture, const StageControl& control) {
  DQ_TRY(vae::Vae * v, vae_encoder_.get(control.on_load));
  // A pipeline in bf16 hands the picture over and takes the distribution back in bf16.
  const WorkType type = decode_type();
  Tensor in = picture;
  for (float& x : in.data) x = round_to(x, type);
  DQ_TRY(vae::Vae::Posterior p, v->encode(in, tiling(vae_tile_), control.cancelled));
  for (Tensor* t : {&p.mean, &p.logvar})
    for (float& x : t->data) x = round_to(x, type);
  return EncodedImage{std::move(p.mean), std::move(p.logvar)};
}

void StandardFamily::open_vae() {
  vae_ = vae_slot(vae::Part::decoder);
  const auto& tensors = ctx_.checkpoint.find("vae")->source->tensors();
  has_encoder_ = std::any_of(tensors.begin(), tensors.end(),
                             [](const TensorInfo& t) { return t.name.find("encoder.conv_in.") != std::string::npos; });
  if (has_encoder_) vae_encoder_ = vae_slot(vae::Part::encoder);
}

Slot<vae::Vae> StandardFamily::vae_slot(vae::Part part) const {
  return slot_of<vae::Vae>("vae", [part](std::shared_ptr<Device> device, const ComponentFiles& files,
                                         const WeightPolicy& policy, const LoadProgress& progress) {
    return vae::Vae::load(std::move(device), files, part, policy, progress);
  });
}

}  // namespace danqing
