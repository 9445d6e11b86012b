// The true decoder's graph, built and measured without its weights.
#include "ernie_image/sparse_file.h"
#include "models/vae/vae.h"
#include "testing/testing.h"

namespace danqing::vae {
namespace {

TEST(TrueSize, MemoryOfDecodingIsBounded) {
  const Json json{{"_class_name", "AutoencoderKLFlux2"},
                  {"block_out_channels", {128, 256, 512, 512}},
                  {"latent_channels", 32},
                  {"layers_per_block", 2},
                  {"patch_size", {2, 2}}};
  DQ_ASSERT_OK(Config c, Config::parse(json, "config.json"));
  const testing::TempDir dir;
  const auto path = dir / "vae.safetensors";
  testing::write_sparse_checkpoint(path, tensor_table(c, Part::decoder));
  ComponentFiles files;
  DQ_ASSERT_OK(files.source, TensorSource::open(path));
  files.path = path, files.config = json;
  DQ_ASSERT_OK(auto device, Device::open("cpu"));
  DQ_ASSERT_OK(auto vae, Vae::load(device, files, Part::decoder, {}));
  DQ_ASSERT_OK(size_t bytes, vae->measure_decode(1, 128, 128));
  std::printf("compute buffer, 1024x1024: %zu bytes\n", bytes);
  // The widest pictures are 256 channels at 1024x1024: 1 GiB in f32 each. A residual block holds its input, its result
  // so far, and one more while a norm or convolution writes; a whole picture's im2col (9 GiB) would not pass.
  EXPECT_LT(bytes, size_t{4} << 30);
  // Four times the pixels, four times the memory: the attention over 65536 pixels does not grow with their square.
  DQ_ASSERT_OK(size_t large, vae->measure_decode(1, 256, 256));
  EXPECT_LT(static_cast<double>(large), 4.1 * static_cast<double>(bytes));
}

TEST(TrueSize, FlopsOfDecoding) {
  Config c;
  c.latent_channels = 2, c.layers_per_block = 1, c.block_out_channels = {4}, c.norm_num_groups = 1;
  // 6 x 5 pixels: 1x1 of 2x2, 3x3 of 2x4, attention 4 x 4x4 and 2 x 30 x 4, eight 3x3 of 4x4, 3x3 of 4x3.
  EXPECT_DOUBLE_EQ(Vae::decode_flops(c, 3, 6, 5), 3 * 2.0 * 30 * (4 + 72 + 64 + 240 + 8 * 144 + 108));
}

}  // namespace
}  // namespace danqing::vae
