// A VAE of any config with weights drawn at random, scaled so that values stay about as large as they are.
#pragma once
#include <cmath>
#include <map>
#include <span>

#include "models/vae/vae.h"
#include "testing/testing.h"

namespace danqing::vae::testing {

class Numbers {
 public:
  explicit Numbers(uint64_t seed = 7) : state_(seed) {}
  float next(float scale) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return scale * 3.4f * (static_cast<float>(state_ >> 40) / 16777216.0f - 0.5f);
  }
  Tensor tensor(const Shape& shape) {
    Tensor t(shape);
    for (float& v : t.data) v = next(1.0f);
    return t;
  }

 private:
  uint64_t state_;
};

using Values = std::map<std::string, std::vector<float>>;

/// The weights go to `values` too, if given.
inline ComponentFiles random_files(const Config& c, Numbers& n, Values* values = nullptr) {
  std::vector<TensorInfo> tensors;
  std::vector<std::byte> storage;
  for (const TensorSpec& s : tensor_table(c, Part::both)) {
    std::vector<float> v(static_cast<size_t>(element_count(s.shape)));
    const float scale =
        s.shape.size() > 1 ? std::sqrt(static_cast<float>(s.shape[0]) / static_cast<float>(v.size())) : 0.2f;
    const float offset = s.shape.size() == 1 && s.name.find("bias") == std::string::npos ? 1.0f : 0.0f;
    for (float& x : v) x = offset + n.next(scale);
    const auto bytes = std::as_bytes(std::span(v));
    tensors.push_back({s.name, DType::f32, s.shape, 0, storage.size(), bytes.size()});
    storage.insert(storage.end(), bytes.begin(), bytes.end());
    if (values) (*values)[s.name] = std::move(v);
  }
  ComponentFiles files;
  files.source = TensorSource::from_memory(std::move(tensors), std::move(storage));
  files.config = Json{{"_class_name", c.has_batch_norm ? "AutoencoderKLFlux2" : "AutoencoderKL"},
                      {"block_out_channels", c.block_out_channels},
                      {"latent_channels", c.latent_channels},
                      {"layers_per_block", c.layers_per_block},
                      {"norm_num_groups", c.norm_num_groups},
                      {"in_channels", c.in_channels},
                      {"out_channels", c.out_channels},
                      {"use_quant_conv", c.use_quant_conv},
                      {"use_post_quant_conv", c.use_post_quant_conv},
                      {"mid_block_add_attention", c.mid_block_add_attention}};
  if (!c.decoder_block_out_channels.empty())
    (*files.config)["decoder_block_out_channels"] = c.decoder_block_out_channels;
  return files;
}

}  // namespace danqing::vae::testing
