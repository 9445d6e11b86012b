// Configs of the VAE: the fixtures', hostile ones, and those read off tensor shapes.
#include <algorithm>

#include "models/vae/vae.h"
#include "testing/testing.h"

namespace danqing::vae {
namespace {

using testing::data;

const char* kFlux2 = R"({"_class_name": "AutoencoderKLFlux2", "act_fn": "silu", "batch_norm_eps": 0.0001,
  "block_out_channels": [32, 32, 64, 64], "decoder_block_out_channels": null,
  "down_block_types": ["DownEncoderBlock2D", "DownEncoderBlock2D", "DownEncoderBlock2D", "DownEncoderBlock2D"],
  "in_channels": 3, "latent_channels": 32, "layers_per_block": 2, "mid_block_add_attention": true,
  "norm_num_groups": 32, "out_channels": 3, "patch_size": [2, 2], "sample_size": 64,
  "up_block_types": ["UpDecoderBlock2D", "UpDecoderBlock2D", "UpDecoderBlock2D", "UpDecoderBlock2D"],
  "use_post_quant_conv": true, "use_quant_conv": true})";

const char* kKl = R"({"_class_name": "AutoencoderKL", "act_fn": "silu", "block_out_channels": [32, 32, 64, 64],
  "force_upcast": true, "in_channels": 3, "latent_channels": 16, "layers_per_block": 1, "norm_num_groups": 32,
  "out_channels": 3, "scaling_factor": 0.3611, "shift_factor": 0.1159, "use_post_quant_conv": false,
  "use_quant_conv": false})";

Json good() { return Json::parse(kFlux2); }

void expect_equal(const Config& a, const Config& b) {
  EXPECT_EQ(a.in_channels, b.in_channels);
  EXPECT_EQ(a.out_channels, b.out_channels);
  EXPECT_EQ(a.latent_channels, b.latent_channels);
  EXPECT_EQ(a.layers_per_block, b.layers_per_block);
  EXPECT_EQ(a.norm_num_groups, b.norm_num_groups);
  EXPECT_EQ(a.block_out_channels, b.block_out_channels);
  EXPECT_EQ(a.decoder_widths(), b.decoder_widths());
  EXPECT_EQ(a.use_quant_conv, b.use_quant_conv);
  EXPECT_EQ(a.use_post_quant_conv, b.use_post_quant_conv);
  EXPECT_EQ(a.mid_block_add_attention, b.mid_block_add_attention);
  EXPECT_EQ(a.patch_size, b.patch_size);
  EXPECT_EQ(a.has_batch_norm, b.has_batch_norm);
  EXPECT_EQ(a.scaling_factor, b.scaling_factor);
  EXPECT_EQ(a.shift_factor, b.shift_factor);
}

std::shared_ptr<const TensorSource> zeros(const std::vector<TensorSpec>& specs, const std::string& prefix = "") {
  std::vector<TensorInfo> tensors;
  uint64_t offset = 0;
  for (const TensorSpec& s : specs) {
    const uint64_t bytes = static_cast<uint64_t>(element_count(s.shape)) * 4;
    tensors.push_back({prefix + s.name, DType::f32, s.shape, 0, offset, bytes});
    offset += bytes;
  }
  return TensorSource::from_memory(std::move(tensors), std::vector<std::byte>(offset));
}

// The names of the original (LDM) code, as Comfy and FLUX files have them: written out apart from name_map, which
// undoes it.
std::string original_name(std::string name, size_t blocks) {
  const auto replace = [&](const std::string& from, const std::string& to) {
    if (const size_t at = name.find(from); at != std::string::npos) name.replace(at, from.size(), to);
  };
  for (size_t i = 0; i < blocks; ++i)
    replace("up_blocks." + std::to_string(i) + ".", "UP." + std::to_string(blocks - 1 - i) + ".");
  replace("UP.", "up.");
  replace("down_blocks.", "down.");
  replace("mid_block.resnets.0.", "mid.block_1.");
  replace("mid_block.resnets.1.", "mid.block_2.");
  replace("mid_block.attentions.0.group_norm.", "mid.attn_1.norm.");
  replace("mid_block.attentions.0.to_out.0.", "mid.attn_1.proj_out.");
  replace("mid_block.attentions.0.to_", "mid.attn_1.");
  replace(".resnets.", ".block.");
  replace("downsamplers.0.", "downsample.");
  replace("upsamplers.0.", "upsample.");
  replace("conv_shortcut", "nin_shortcut");
  replace("conv_norm_out", "norm_out");
  if (name.rfind("post_quant_conv.", 0) == 0) name = "decoder." + name;
  if (name.rfind("quant_conv.", 0) == 0) name = "encoder." + name;
  return name;
}

TEST(Config, ReadsTheFixtures) {
  for (const auto& path : {data("fixtures/ernie-tiny/vae"), testing::mini_model() / "vae"}) {
    DQ_ASSERT_OK(Json json, read_json(path / "config.json"));
    DQ_ASSERT_OK(Config c, Config::parse(json, path.string()));
    EXPECT_TRUE(c.has_batch_norm);
    EXPECT_EQ(c.scale(), 8);
    DQ_ASSERT_OK(auto source, TensorSource::open(path));
    for (Part part : {Part::both, Part::decoder, Part::encoder}) {
      DQ_ASSERT_OK(BoundTensors bound, danqing::bind(source, tensor_table(c, part), name_map(c), "VAE"));
      EXPECT_TRUE(bound.unused.empty()) << bound.unused.front();
      if (part == Part::both) {
        EXPECT_EQ(bound.tensors.size() + 1, source->tensors().size());  // + bn.num_batches_tracked
      }
    }
    const auto inferred = Config::infer(*source);
    if (c.norm_num_groups == 32) {
      ASSERT_TRUE(inferred.ok()) << inferred.error().message;
      expect_equal(*inferred, c);
    } else {  // no shape tells the groups, and 32 do not divide these widths
      ASSERT_FALSE(inferred.ok());
      EXPECT_NE(inferred.error().message.find("norm_num_groups"), std::string::npos) << inferred.error().message;
    }
  }
}

TEST(Config, ReadsAutoencoderKl) {
  DQ_ASSERT_OK(Config c, Config::parse(Json::parse(kKl), "config.json"));
  EXPECT_FALSE(c.has_batch_norm);
  EXPECT_DOUBLE_EQ(c.scaling_factor, 0.3611);
  EXPECT_DOUBLE_EQ(c.shift_factor, 0.1159);
  EXPECT_FALSE(c.use_quant_conv);
  for (const TensorSpec& s : tensor_table(c, Part::both)) {
    EXPECT_EQ(s.name.find("quant_conv"), std::string::npos);
    EXPECT_NE(s.name.rfind("bn.", 0), 0u);
  }
  DQ_ASSERT_OK(Config inferred, Config::infer(*zeros(tensor_table(c, Part::both))));
  expect_equal(inferred, c);
  Json j = Json::parse(kKl);
  j["shift_factor"] = nullptr;
  j.erase("scaling_factor");
  DQ_ASSERT_OK(Config defaults, Config::parse(j, "config.json"));
  EXPECT_DOUBLE_EQ(defaults.scaling_factor, 0.18215);
  EXPECT_DOUBLE_EQ(defaults.shift_factor, 0);
}

TEST(Config, InfersEveryVariantUnderBothNamings) {
  DQ_ASSERT_OK(Config base, Config::parse(good(), "config.json"));
  std::vector<Config> variants(5, base);
  variants[1].decoder_block_out_channels = {32, 64, 64, 96};
  variants[2].block_out_channels = {32, 64};
  variants[2].layers_per_block = 1;
  variants[3].mid_block_add_attention = variants[3].use_quant_conv = variants[3].use_post_quant_conv = false;
  variants[4].in_channels = 4, variants[4].out_channels = 1, variants[4].patch_size = {1, 1};
  for (const Config& c : variants) {
    const std::vector<TensorSpec> specs = tensor_table(c, Part::both);
    for (const std::string& prefix : name_map(c).prefixes) {
      DQ_ASSERT_OK(Config same, Config::infer(*zeros(specs, prefix)));
      expect_equal(same, c);
      std::vector<TensorSpec> renamed = specs;
      for (TensorSpec& s : renamed) s.name = original_name(s.name, c.block_out_channels.size());
      const auto source = zeros(renamed, prefix);
      DQ_ASSERT_OK(Config original, Config::infer(*source));
      expect_equal(original, c);
      DQ_ASSERT_OK(BoundTensors bound, danqing::bind(source, specs, name_map(c), "VAE"));
      for (size_t i = 0; i < specs.size(); ++i) EXPECT_EQ(bound.tensors[i].stored->name, prefix + renamed[i].name);
    }
  }
  // One half alone.
  DQ_ASSERT_OK(Config decoder, Config::infer(*zeros(tensor_table(base, Part::decoder))));
  EXPECT_EQ(decoder.decoder_widths(), base.decoder_widths());
  EXPECT_EQ(decoder.layers_per_block, base.layers_per_block);
  EXPECT_EQ(decoder.latent_channels, base.latent_channels);
  DQ_ASSERT_OK(Config encoder, Config::infer(*zeros(tensor_table(base, Part::encoder))));
  EXPECT_EQ(encoder.block_out_channels, base.block_out_channels);
  EXPECT_EQ(encoder.latent_channels, base.latent_channels);
}

TEST(Config, InferRefusesOtherFiles) {
  const auto nothing = Config::infer(*zeros({{"lm_head.weight", {4, 4}, WeightUse::matrix}}));
  ASSERT_FALSE(nothing.ok());
  EXPECT_NE(nothing.error().message.find("decoder.conv_in.weight"), std::string::npos) << nothing.error().message;
  // A lone input convolution, and statistics of a size that no patch explains.
  EXPECT_FALSE(Config::infer(*zeros({{"decoder.conv_in.weight", {64, 32, 3, 3}, WeightUse::kernel}})).ok());
  DQ_ASSERT_OK(Config c, Config::parse(good(), "config.json"));
  std::vector<TensorSpec> specs = tensor_table(c, Part::both);
  for (TensorSpec& s : specs)
    if (s.name == "bn.running_mean") s.shape = {127};
  const auto odd = Config::infer(*zeros(specs));
  ASSERT_FALSE(odd.ok());
  EXPECT_NE(odd.error().message.find("bn.running_mean"), std::string::npos) << odd.error().message;
}

TEST(Config, HostileConfigsAreOneClearError) {
  struct Case {
    const char* field;
    const char* value;  // JSON; empty: the field is removed
  };
  const Case cases[] = {
      {"block_out_channels", ""},
      {"block_out_channels", "null"},
      {"block_out_channels", "[]"},
      {"block_out_channels", "64"},
      {"block_out_channels", "[32, \"32\", 64, 64]"},
      {"block_out_channels", "[32, 0, 64, 64]"},
      {"block_out_channels", "[32, -32, 64, 64]"},
      {"block_out_channels", "[32, 33, 64, 64]"},
      {"block_out_channels", "[32, 9223372036854775776, 64, 64]"},
      {"block_out_channels", "[32, 32, 32, 32, 32, 32, 32, 32, 32]"},
      {"decoder_block_out_channels", "[32, 32, 64]"},
      {"decoder_block_out_channels", "[32, 32, 64, 65]"},
      {"decoder_block_out_channels", "\"same\""},
      {"decoder_block_out_channels", "[32, 32, 64, -64]"},
      {"latent_channels", ""},
      {"latent_channels", "0"},
      {"latent_channels", "-32"},
      {"latent_channels", "4611686018427387904"},
      {"latent_channels", "32.5"},
      {"layers_per_block", ""},
      {"layers_per_block", "0"},
      {"layers_per_block", "-1"},
      {"layers_per_block", "2147483648"},
      {"norm_num_groups", "0"},
      {"norm_num_groups", "-32"},
      {"norm_num_groups", "7"},
      {"norm_num_groups", "64"},
      {"norm_num_groups", "4294967328"},
      {"in_channels", "0"},
      {"in_channels", "true"},
      {"out_channels", "-3"},
      {"out_channels", "1000000"},
      {"patch_size", "2"},
      {"patch_size", "[2]"},
      {"patch_size", "[2, 0]"},
      {"patch_size", "[2, -2]"},
      {"patch_size", "[2, 4294967296]"},
      {"use_quant_conv", "1"},
      {"use_post_quant_conv", "\"no\""},
      {"mid_block_add_attention", "[]"},
      {"act_fn", "\"gelu\""},
      {"act_fn", "3"},
      {"_class_name", "\"AutoencoderTiny\""},
      {"_class_name", "[]"},
      {"down_block_types", "[\"DownEncoderBlock2D\"]"},
      {"down_block_types",
       "[\"DownEncoderBlock2D\", \"AttnDownEncoderBlock2D\", \"DownEncoderBlock2D\", \"DownEncoderBlock2D\"]"},
      {"up_block_types", "4"},
  };
  for (const Case& k : cases) {
    Json j = good();
    if (*k.value)
      j[k.field] = Json::parse(k.value);
    else
      j.erase(k.field);
    const auto r = Config::parse(j, "config.json");
    ASSERT_FALSE(r.ok()) << k.field << " = " << k.value;
    const std::string& m = r.error().message;
    EXPECT_EQ(r.error().code, ErrorCode::bad_input) << m;
    EXPECT_EQ(m.find('\n'), std::string::npos) << m;
    EXPECT_NE(m.find("config.json"), std::string::npos) << m;
    EXPECT_NE(m.find("expected"), std::string::npos) << m;
    EXPECT_NE(m.find(k.field), std::string::npos) << k.value << ": " << m;
  }
  Json kl = Json::parse(kKl);
  for (const char* bad : {"0", "\"a\"", "[]"}) {
    kl["scaling_factor"] = Json::parse(bad);
    EXPECT_FALSE(Config::parse(kl, "config.json").ok()) << bad;
  }
  for (const char* whole : {"[]", "3", "null"})
    EXPECT_FALSE(Config::parse(Json::parse(whole), "config.json").ok()) << whole;
}

}  // namespace
}  // namespace danqing::vae
