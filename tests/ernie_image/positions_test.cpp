// Rotary angles, time sinusoid and patches, without weights.
#include "models/ernie_image/positions.h"

#include <algorithm>

#include "testing/testing.h"

namespace danqing::ernie_image {
namespace {

using testing::close;
using testing::golden;

Config with_axes(std::vector<int64_t> axes) {
  Config c;
  c.rope_axes_dim = axes;
  c.num_attention_heads = 1;
  for (int64_t d : axes) c.hidden_size += d;
  return c;
}

TEST(RopeAngles, EqualTorch) {
  const auto g = golden("units/units");
  const Tensor ids = g.f32("rope.ids"), expected = g.f32("rope.ernie_angles");  // [1, 5, 3], [1, 5, 128]
  const Config c = with_axes({32, 48, 48});
  for (int64_t n = 0; n < ids.size(1); ++n) {
    const int64_t text = static_cast<int64_t>(ids.data[n * 3]), r = static_cast<int64_t>(ids.data[n * 3 + 1]),
                  q = static_cast<int64_t>(ids.data[n * 3 + 2]);
    const Tensor all(Shape{(r + 1) * (q + 1), 128}, rope_angles(c, r + 1, q + 1, text, 0));
    const Tensor row(Shape{128},
                     std::vector<float>(expected.data.begin() + n * 128, expected.data.begin() + (n + 1) * 128));
    // 1e-6: two roundings of an f32 power and quotient, 1.2e-7 each, would be seen; measured 0.
    EXPECT_TRUE(close(item(all, all.size(0) - 1), row, 1e-6)) << "position " << text << " " << r << " " << q;
  }
}

TEST(RopeAngles, TextTokensFollowTheImage) {
  const Config c = with_axes({2, 4, 6});
  const std::vector<float> a = rope_angles(c, 2, 3, 5, 7);
  ASSERT_EQ(a.size(), (6 + 7) * 12u);
  // Image token 4 = row 1, column 1, behind 5 text tokens. The first frequency of every axis is 1, and all stand twice.
  const float* image = a.data() + 4 * 12;
  EXPECT_EQ(image[0], 5.0f);
  EXPECT_EQ(image[1], 5.0f);
  EXPECT_EQ(image[2], 1.0f);
  EXPECT_EQ(image[6], 1.0f);
  const float* text = a.data() + (6 + 3) * 12;
  EXPECT_EQ(text[0], 3.0f);
  EXPECT_TRUE(std::all_of(text + 2, text + 12, [](float v) { return v == 0.0f; }));
}

TEST(TimeSinusoid, EqualsTorch) {
  const auto g = golden("units/units");
  const Tensor t = g.f32("time.in");
  const Tensor got(Shape{5, 256}, time_sinusoid(t.data, 256));
  // 2e-6 as the fixture page says. Measured 1.2e-6, all of it from one frequency of 128 (number 12, exact value 0.479
  // units above the nearest f32) that torch's exp rounds up: one unit of it turns the angle 1000 * f by 3e-5.
  EXPECT_TRUE(close(got, g.f32("time.ernie_256"), 2e-6));

  std::vector<float> rounded;
  for (float v : t.data) rounded.push_back(round_bf16(v));
  EXPECT_EQ(rounded[1], 988.0f);
  // The same frequency at 1000, 988 and 640: measured 2.09e-6.
  EXPECT_TRUE(close(Tensor(Shape{5, 256}, time_sinusoid(rounded, 256)), g.f32("time.ernie_256_bf16_input"), 3e-6));
}

TEST(TimeSinusoid, OddWidthEndsWithZero) {
  const float t = 3.0f;
  const std::vector<float> v = time_sinusoid({&t, 1}, 5);
  ASSERT_EQ(v.size(), 5u);
  EXPECT_FLOAT_EQ(v[0], std::sin(3.0f));
  EXPECT_FLOAT_EQ(v[2], std::cos(3.0f));
  EXPECT_EQ(v[4], 0.0f);
}

TEST(Patches, OrdersOfBothEnds) {
  Tensor x(Shape{2, 3, 4, 6});
  for (size_t i = 0; i < x.data.size(); ++i) x.data[i] = static_cast<float>(i);
  const std::vector<float> in = to_patches(x, 2);
  ASSERT_EQ(in.size(), x.data.size());
  // Item 1, patch (1, 2), channel 2, row 1, column 0 of the patch: element (1, 2, 3, 4).
  const int64_t width = 3 * 2 * 2, patch = 1 * 6 + 1 * 3 + 2;
  EXPECT_EQ(in[static_cast<size_t>(patch * width + 2 * 4 + 1 * 2)], static_cast<float>(((1 * 3 + 2) * 4 + 3) * 6 + 4));

  std::vector<float> out(x.data.size());
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(i);
  const Tensor y = from_patches(out, 2, 3, 2, 3, 2);
  EXPECT_EQ(y.shape, x.shape);
  // The other end has row, column, channel: the same element is entry (1*2 + 0)*3 + 2 of its patch.
  EXPECT_EQ(y.data[static_cast<size_t>(((1 * 3 + 2) * 4 + 3) * 6 + 4)],
            static_cast<float>(patch * width + (1 * 2 + 0) * 3 + 2));
  EXPECT_EQ(from_patches(to_patches(x, 1), 2, 3, 4, 6, 1).data, x.data);
}

}  // namespace
}  // namespace danqing::ernie_image
