// Patches and statistics of latents, against torch's values; no network runs here.
#include <cmath>

#include "models/vae/vae.h"
#include "testing/testing.h"

namespace danqing::vae {
namespace {

using testing::close;
using testing::golden;

const std::vector<int64_t> kPatch{2, 2};

TEST(Latents, DenormaliseAndUnpatchify) {
  const auto g = golden("ernie-tiny/golden/vae");
  const Tensor in = g.f32("denorm.in"), mean = g.f32("denorm.bn_mean"), std = g.f32("denorm.bn_std");
  const Tensor scaled = denormalise(in, mean.data, std.data);
  // One product and one sum per value: 1e-6, which the config's eps in place of the constant would miss by 40 times.
  EXPECT_TRUE(close(scaled, g.f32("denorm.scaled"), 1e-6));
  EXPECT_EQ(unpatchify(scaled, kPatch).shape, g.f32("denorm.unpatchified").shape);
  EXPECT_TRUE(close(unpatchify(scaled, kPatch), g.f32("denorm.unpatchified"), 1e-6));
}

TEST(Latents, PatchifyAndNormaliseAreTheWayBack) {
  const auto g = golden("ernie-tiny/golden/vae");
  const Tensor mean = g.f32("denorm.bn_mean"), std = g.f32("denorm.bn_std");
  for (const char* name : {"encode.48x32", "encode.64x96"}) {
    const Tensor packed = patchify(g.f32(std::string(name) + ".mean"), kPatch);
    EXPECT_EQ(packed.data, g.f32(std::string(name) + ".patchified").data);  // only moved
    EXPECT_TRUE(close(normalise(packed, mean.data, std.data), g.f32(std::string(name) + ".normalised"), 1e-6));
    EXPECT_EQ(unpatchify(packed, kPatch).data, g.f32(std::string(name) + ".mean").data);
  }
}

TEST(Latents, PatchesNeedNotBeSquare) {
  Tensor x(Shape{2, 3, 4, 9});
  for (size_t i = 0; i < x.data.size(); ++i) x.data[i] = static_cast<float>(i);
  const Tensor packed = patchify(x, {2, 3});
  EXPECT_EQ(packed.shape, (Shape{2, 18, 2, 3}));
  // Item 1, channel 2, row 1, column 2 of patch (1, 2): channel (2*2 + 1)*3 + 2 there, element (3, 8) here.
  EXPECT_EQ(packed.data[static_cast<size_t>(((1 * 18 + 17) * 2 + 1) * 3 + 2)],
            static_cast<float>(((1 * 3 + 2) * 4 + 3) * 9 + 8));
  EXPECT_EQ(unpatchify(packed, {2, 3}).data, x.data);
}

// A bf16 pipeline rounds the statistics and every operation.
TEST(Latents, Bf16RoundsEveryOperation) {
  const float var = 0.80859375f, mean = 0.3f, x = 1.2345f;  // the variance is a bf16 number
  const Tensor z = denormalise(Tensor(Shape{1, 1, 1, 1}, {x}), {mean}, {std::sqrt(var + 1e-5f)}, true);
  const float std = round_bf16(std::sqrt(round_bf16(var + 1e-5f)));
  EXPECT_EQ(z.data[0], round_bf16(round_bf16(round_bf16(x) * std) + round_bf16(mean)));
  EXPECT_NE(z.data[0], x * std + mean);
  // Where 1e-5 is large beside the variance, it must not be lost.
  const float small = 1.00135803e-05f;
  const Tensor y = denormalise(Tensor(Shape{1, 1, 1, 1}, {1.0f}), {0.0f}, {std::sqrt(round_bf16(small) + 1e-5f)}, true);
  EXPECT_EQ(y.data[0], round_bf16(std::sqrt(round_bf16(round_bf16(small) + 1e-5f))));
}

}  // namespace
}  // namespace danqing::vae
