#include <algorithm>

#include "base/try.h"
#include "models/vae/config_check.h"

namespace danqing::vae {
namespace {

// Looks tensors up under whatever prefix and in whichever of the two naming schemes the file has.
class Finder {
 public:
  explicit Finder(const TensorSource& source) : source_(source) {
    for (const std::string& p : name_map({}).prefixes) {
      if (!source.find(p + "decoder.conv_in.weight") && !source.find(p + "encoder.conv_in.weight")) continue;
      prefix_ = p;
      original_ =
          source.find(p + "decoder.mid.block_1.conv1.weight") || source.find(p + "encoder.mid.block_1.conv1.weight");
    }
  }
  const TensorInfo* find(const std::string& name) const { return source_.find(prefix_ + name); }
  bool has_any(std::initializer_list<const char*> names) const {
    return std::any_of(names.begin(), names.end(), [&](const char* n) { return find(n) != nullptr; });
  }
  /// The first convolution of a residual block, blocks and layers in the file's own order.
  const TensorInfo* down(int64_t i, int64_t layer) const { return resnet("encoder.down", i, layer); }
  const TensorInfo* up(int64_t i, int64_t layer) const { return resnet("decoder.up", i, layer); }
  /// The original code's names, whose decoder counts its blocks from the highest resolution.
  bool original() const { return original_; }

 private:
  const TensorInfo* resnet(const char* half, int64_t i, int64_t layer) const {
    return find(fmt::format("{}{}.{}.{}.{}.conv1.weight", half, original_ ? "" : "_blocks", i,
                            original_ ? "block" : "resnets", layer));
  }
  const TensorSource& source_;
  std::string prefix_;
  bool original_ = false;
};

// Size of one axis; 0 (which no check lets pass) if the tensor is not there or has too few axes.
int64_t axis(const TensorInfo* t, size_t i) { return t && i < t->shape.size() ? t->shape[i] : 0; }

template <class At>
Shape widths(At at) {
  Shape w;
  while (const TensorInfo* t = at(static_cast<int64_t>(w.size()))) w.push_back(axis(t, 0));
  return w;
}

template <class At>
int64_t count(At at) {
  int64_t n = 0;
  while (at(n)) ++n;
  return n;
}

}  // namespace

Result<Config> Config::infer(const TensorSource& source) {
  const Finder f(source);
  const std::string where = source.path().string();
  const TensorInfo *dec_in = f.find("decoder.conv_in.weight"), *enc_in = f.find("encoder.conv_in.weight");
  if (!dec_in && !enc_in)
    return bad_input("[vae] {}: expected tensor 'decoder.conv_in.weight' or 'encoder.conv_in.weight', got neither",
                     where);

  Config c;
  c.block_out_channels = widths([&](int64_t i) { return f.down(i, 0); });
  Shape decoder = widths([&](int64_t i) { return f.up(i, 0); });
  if (!f.original()) std::reverse(decoder.begin(), decoder.end());
  if (c.block_out_channels.empty())
    c.block_out_channels = decoder;
  else if (!decoder.empty() && decoder != c.block_out_channels)
    c.decoder_block_out_channels = decoder;

  c.layers_per_block =
      enc_in ? count([&](int64_t j) { return f.down(0, j); }) : count([&](int64_t j) { return f.up(0, j); }) - 1;
  c.latent_channels = dec_in ? axis(dec_in, 1) : axis(f.find("encoder.conv_out.weight"), 0) / 2;
  if (enc_in) c.in_channels = axis(enc_in, 1);
  if (dec_in) c.out_channels = axis(f.find("decoder.conv_out.weight"), 0);
  c.use_quant_conv = f.has_any({"quant_conv.weight", "encoder.quant_conv.weight"});
  c.use_post_quant_conv = f.has_any({"post_quant_conv.weight", "decoder.post_quant_conv.weight"});
  c.mid_block_add_attention = f.has_any({"decoder.mid_block.attentions.0.to_q.weight", "decoder.mid.attn_1.q.weight",
                                         "encoder.mid_block.attentions.0.to_q.weight", "encoder.mid.attn_1.q.weight"});

  if (const TensorInfo* mean = f.find("bn.running_mean")) {
    c.has_batch_norm = true;
    int64_t p = 1;
    while (p < 16 && c.latent_channels > 0 && c.latent_channels <= 4096 && p * p * c.latent_channels < axis(mean, 0))
      ++p;
    if (p * p * c.latent_channels != axis(mean, 0)) {
      return bad_input("[vae] {}: tensor '{}' expected {} latent channels times a square, got {}", where, mean->name,
                       c.latent_channels, to_string(mean->shape));
    }
    c.patch_size = {p, p};
  } else if (c.latent_channels == 16) {
    c.scaling_factor = 0.3611;
    c.shift_factor = 0.1159;
  }
  DQ_CHECK(check(c, where));
  return c;
}

}  // namespace danqing::vae
