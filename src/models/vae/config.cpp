#include <algorithm>

#include "base/try.h"
#include "models/vae/config_check.h"

namespace danqing::vae {
namespace {

constexpr int64_t kMaxWidth = 16384;  // the largest known VAE has 1024 channels

Result<void> in_range(const std::string& where, const char* field, int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max) return {};
  return bad_input("[vae] {}: field '{}' expected {} to {}, got {}", where, field, min, max, value);
}

Result<void> check_widths(const Config& c, const std::string& where, const char* field, const Shape& widths) {
  DQ_CHECK(in_range(where, field, static_cast<int64_t>(widths.size()), 1, 8));
  for (int64_t w : widths) {
    DQ_CHECK(in_range(where, field, w, 1, kMaxWidth));
    if (w % c.norm_num_groups != 0)
      return bad_input("[vae] {}: field '{}' expected multiples of norm_num_groups {}, got {}", where, field,
                       c.norm_num_groups, w);
  }
  return {};
}

// Only one kind of block is built here: a list of others must not pass for it.
Result<void> check_block_types(const JsonObject& o, const char* field, const char* expected, size_t count) {
  const Json* list = o.get(field);
  if (!list) return {};
  const bool fits = list->is_array() && list->size() == count &&
                    std::all_of(list->begin(), list->end(), [&](const Json& t) { return t == expected; });
  if (fits) return {};
  return bad_input("[vae] {}: field '{}' expected {} times {}, got {}", o.where(), field, count, expected,
                   dump_json(*list).substr(0, 80));
}

Result<bool> is_flux2(const JsonObject& o) {
  DQ_TRY(std::string class_name,
         o.string("_class_name", o.has("batch_norm_eps") ? "AutoencoderKLFlux2" : "AutoencoderKL"));
  if (class_name == "AutoencoderKLFlux2") return true;
  if (class_name == "AutoencoderKL") return false;
  return bad_input("[vae] {}: expected _class_name AutoencoderKLFlux2 or AutoencoderKL, got '{}'", o.where(),
                   class_name);
}

}  // namespace

Result<void> check(const Config& c, const std::string& where) {
  DQ_CHECK(in_range(where, "norm_num_groups", c.norm_num_groups, 1, kMaxWidth));
  DQ_CHECK(in_range(where, "layers_per_block", c.layers_per_block, 1, 64));
  DQ_CHECK(in_range(where, "latent_channels", c.latent_channels, 1, 4096));
  DQ_CHECK(in_range(where, "in_channels", c.in_channels, 1, 64));
  DQ_CHECK(in_range(where, "out_channels", c.out_channels, 1, 64));
  DQ_CHECK(check_widths(c, where, "block_out_channels", c.block_out_channels));
  DQ_CHECK(check_widths(c, where, "decoder_block_out_channels", c.decoder_widths()));
  if (c.decoder_widths().size() != c.block_out_channels.size())
    return bad_input("[vae] {}: field 'decoder_block_out_channels' expected {} widths like block_out_channels, got {}",
                     where, c.block_out_channels.size(), c.decoder_widths().size());
  DQ_CHECK(in_range(where, "patch_size", static_cast<int64_t>(c.patch_size.size()), 2, 2));
  for (int64_t p : c.patch_size) DQ_CHECK(in_range(where, "patch_size", p, 1, 16));
  if (c.scaling_factor == 0) return bad_input("[vae] {}: field 'scaling_factor' expected a number other than 0", where);
  return {};
}

Result<Config> Config::parse(const Json& json, const std::string& where) {
  DQ_TRY(JsonObject o, JsonObject::of(json, where));
  Config c;
  DQ_TRY(c.has_batch_norm, is_flux2(o));
  DQ_TRY(c.block_out_channels, o.integers("block_out_channels"));
  DQ_TRY(c.decoder_block_out_channels, o.integers("decoder_block_out_channels", Shape{}));
  DQ_TRY(c.latent_channels, o.integer("latent_channels"));
  DQ_TRY(c.layers_per_block, o.integer("layers_per_block"));
  DQ_TRY(c.norm_num_groups, o.integer("norm_num_groups", 32));
  DQ_TRY(c.in_channels, o.integer("in_channels", 3));
  DQ_TRY(c.out_channels, o.integer("out_channels", 3));
  DQ_TRY(c.use_quant_conv, o.boolean("use_quant_conv", true));
  DQ_TRY(c.use_post_quant_conv, o.boolean("use_post_quant_conv", true));
  DQ_TRY(c.mid_block_add_attention, o.boolean("mid_block_add_attention", true));
  if (c.has_batch_norm) {
    DQ_TRY(c.patch_size, o.integers("patch_size", Shape{2, 2}));
  } else {
    DQ_TRY(c.scaling_factor, o.number("scaling_factor", 0.18215));  // the class's own default
    DQ_TRY(c.shift_factor, o.number("shift_factor", 0.0));
  }
  DQ_CHECK(check(c, where));
  DQ_TRY(std::string act, o.string("act_fn", "silu"));
  if (act != "silu") return bad_input("[vae] {}: field 'act_fn' expected silu, got '{}'", where, act);
  DQ_CHECK(check_block_types(o, "down_block_types", "DownEncoderBlock2D", c.block_out_channels.size()));
  DQ_CHECK(check_block_types(o, "up_block_types", "UpDecoderBlock2D", c.decoder_widths().size()));
  return c;
}

}  // namespace danqing::vae
