#include <fmt/format.h>

#include "models/vae/vae.h"

namespace danqing::vae {
namespace {

class Table {
 public:
  std::vector<TensorSpec> specs;

  void conv(const std::string& name, int64_t out, int64_t in, int64_t kernel) {
    specs.push_back({name + ".weight", {out, in, kernel, kernel}, WeightUse::kernel});
    specs.push_back({name + ".bias", {out}, WeightUse::vector});
  }
  void norm(const std::string& name, int64_t n) {
    specs.push_back({name + ".weight", {n}, WeightUse::vector});
    specs.push_back({name + ".bias", {n}, WeightUse::vector});
  }
  void resnet(const std::string& name, int64_t in, int64_t out) {
    norm(name + ".norm1", in);
    conv(name + ".conv1", out, in, 3);
    norm(name + ".norm2", out);
    conv(name + ".conv2", out, out, 3);
    if (in != out) conv(name + ".conv_shortcut", out, in, 1);
  }
  void middle(const std::string& name, int64_t width, bool attention) {
    resnet(name + ".resnets.0", width, width);
    if (attention) {
      const std::string a = name + ".attentions.0.";
      norm(a + "group_norm", width);
      for (const char* part : {"to_q", "to_k", "to_v", "to_out.0"}) {
        specs.push_back({a + part + ".weight", {width, width}, WeightUse::matrix});
        specs.push_back({a + part + ".bias", {width}, WeightUse::vector});
      }
    }
    resnet(name + ".resnets.1", width, width);
  }
};

void add_encoder(Table& t, const Config& c) {
  const std::vector<int64_t>& widths = c.block_out_channels;
  int64_t in = widths.front();
  t.conv("encoder.conv_in", in, c.in_channels, 3);
  for (size_t i = 0; i < widths.size(); ++i) {
    const std::string block = fmt::format("encoder.down_blocks.{}.", i);
    for (int64_t j = 0; j < c.layers_per_block; ++j, in = widths[i])
      t.resnet(fmt::format("{}resnets.{}", block, j), in, widths[i]);
    if (i + 1 < widths.size()) t.conv(block + "downsamplers.0.conv", in, in, 3);
  }
  t.middle("encoder.mid_block", in, c.mid_block_add_attention);
  t.norm("encoder.conv_norm_out", in);
  t.conv("encoder.conv_out", 2 * c.latent_channels, in, 3);
  if (c.use_quant_conv) t.conv("quant_conv", 2 * c.latent_channels, 2 * c.latent_channels, 1);
}

void add_decoder(Table& t, const Config& c) {
  const std::vector<int64_t>& widths = c.decoder_widths();
  int64_t in = widths.back();
  if (c.use_post_quant_conv) t.conv("post_quant_conv", c.latent_channels, c.latent_channels, 1);
  t.conv("decoder.conv_in", in, c.latent_channels, 3);
  t.middle("decoder.mid_block", in, c.mid_block_add_attention);
  for (size_t i = 0; i < widths.size(); ++i) {
    const std::string block = fmt::format("decoder.up_blocks.{}.", i);
    const int64_t out = widths[widths.size() - 1 - i];
    for (int64_t j = 0; j <= c.layers_per_block; ++j, in = out)
      t.resnet(fmt::format("{}resnets.{}", block, j), in, out);
    if (i + 1 < widths.size()) t.conv(block + "upsamplers.0.conv", out, out, 3);
  }
  t.norm("decoder.conv_norm_out", in);
  t.conv("decoder.conv_out", c.out_channels, in, 3);
}

}  // namespace

std::vector<TensorSpec> tensor_table(const Config& c, Part part) {
  Table t;
  if (c.has_batch_norm) {
    const int64_t n = c.latent_channels * c.patch_size[0] * c.patch_size[1];
    t.specs.push_back({"bn.running_mean", {n}, WeightUse::vector});
    t.specs.push_back({"bn.running_var", {n}, WeightUse::vector});
  }
  if (part != Part::decoder) add_encoder(t, c);
  if (part != Part::encoder) add_decoder(t, c);
  return std::move(t.specs);
}

NameMap name_map(const Config& c) {
  NameMap map;
  map.prefixes = {"", "vae.", "first_stage_model."};
  map.aliases = {{"decoder.post_quant_conv.", "post_quant_conv."},
                 {"encoder.quant_conv.", "quant_conv."},
                 {"mid.block_1.", "mid_block.resnets.0."},
                 {"mid.block_2.", "mid_block.resnets.1."},
                 {"mid.attn_1.norm.", "mid_block.attentions.0.group_norm."},
                 {"mid.attn_1.q.", "mid_block.attentions.0.to_q."},
                 {"mid.attn_1.k.", "mid_block.attentions.0.to_k."},
                 {"mid.attn_1.v.", "mid_block.attentions.0.to_v."},
                 {"mid.attn_1.proj_out.", "mid_block.attentions.0.to_out.0."},
                 {"norm_out.", "conv_norm_out."},
                 {"nin_shortcut.", "conv_shortcut."}};
  const size_t blocks = c.block_out_channels.size();
  for (size_t i = 0; i < blocks; ++i) {
    const size_t up = blocks - 1 - i;
    map.aliases.push_back({fmt::format("down.{}.block.", i), fmt::format("down_blocks.{}.resnets.", i)});
    map.aliases.push_back({fmt::format("down.{}.downsample.", i), fmt::format("down_blocks.{}.downsamplers.0.", i)});
    map.aliases.push_back({fmt::format("up.{}.block.", i), fmt::format("up_blocks.{}.resnets.", up)});
    map.aliases.push_back({fmt::format("up.{}.upsample.", i), fmt::format("up_blocks.{}.upsamplers.0.", up)});
  }
  map.ignored = {"bn.num_batches_tracked", "encoder.", "decoder.", "quant_conv.", "post_quant_conv."};
  return map;
}

}  // namespace danqing::vae
