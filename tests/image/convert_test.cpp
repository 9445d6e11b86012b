#include "image/convert.h"

#include <gmock/gmock.h>

#include <cmath>

#include "image/pictures.h"
#include "testing/testing.h"

namespace danqing {
namespace {

using testing::golden;
using ::testing::HasSubstr;

void expect_same(const Image& image, const Tensor& u8, size_t index) {
  const size_t n = image.pixels.size();
  ASSERT_LE((index + 1) * n, u8.data.size());
  for (size_t i = 0; i < n; ++i)
    ASSERT_EQ(image.pixels[i], u8.data[index * n + i]) << "picture " << index << " at " << i;
}

TEST(ToImages, EqualsThePipelineExactly) {
  const auto vae = golden("ernie-tiny/golden/vae");
  for (const std::string name : {"decode.2x4", "decode.8x8"}) {
    DQ_ASSERT_OK(const std::vector<Image> images, to_images(vae.f32(name + ".out")));
    ASSERT_EQ(images.size(), 1u);
    expect_same(images[0], vae.f32(name + ".u8"), 0);
  }
  for (const std::string run : {"cfg4", "cfg4_neg", "g1", "batch"}) {
    const auto g = golden("ernie-tiny/golden/run_" + run + "_f32");
    DQ_ASSERT_OK(const std::vector<Image> images, to_images(g.f32("decoded")));
    const Tensor u8 = g.f32("image_u8");
    ASSERT_EQ(static_cast<int64_t>(images.size()), u8.size(0));
    for (size_t i = 0; i < images.size(); ++i) {
      EXPECT_EQ(images[i].height, u8.size(1));
      EXPECT_EQ(images[i].width, u8.size(2));
      expect_same(images[i], u8, i);
    }
  }
}

TEST(ToImages, RoundsInTheWorkingType) {
  const auto g = golden("units/units");
  std::vector<float> in = g.f32("image.in").data;
  const auto n = static_cast<int64_t>(in.size());
  for (const auto& [key, type] :
       {std::pair("image.u8.f32", WorkType::f32), std::pair("image.u8.bf16", WorkType::bf16)}) {
    const std::vector<float> expected = g.f32(key).data;
    Tensor t(Shape{1, 3, 1, n});
    for (size_t i = 0; i < t.data.size(); ++i) t.data[i] = round_to(in[i % in.size()], type);
    DQ_ASSERT_OK(const std::vector<Image> images, to_images(t, type));
    for (size_t i = 0; i < images[0].pixels.size(); ++i)
      EXPECT_EQ(images[0].pixels[i], expected[i / 3]) << key << " " << i / 3;
  }
}

TEST(ToImages, RefusesWhatIsNoPicture) {
  for (const float bad : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
    Tensor t(Shape{2, 3, 2, 2});
    t.data[13] = bad;
    const auto r = to_images(t);
    ASSERT_FALSE(r.ok());
    EXPECT_THAT(r.error().message, HasSubstr("in picture 1"));
  }
  for (const Shape& s : {Shape{3, 2, 2}, Shape{1, 4, 2, 2}, Shape{1, 3, 0, 2}, Shape{}})
    EXPECT_FALSE(to_images(Tensor(s)).ok());
  DQ_ASSERT_OK(const std::vector<Image> none, to_images(Tensor(Shape{0, 3, 2, 2})));
  EXPECT_TRUE(none.empty());
}

TEST(FromImage, EqualsThePipelineExactly) {
  const auto vae = golden("ernie-tiny/golden/vae");
  for (const std::string name : {"encode.48x32", "encode.64x96"}) {
    const Tensor u8 = vae.f32(name + ".image_u8"), expected = vae.f32(name + ".in");
    Image image{static_cast<int>(u8.size(1)), static_cast<int>(u8.size(0)), {u8.data.begin(), u8.data.end()}};
    const Tensor got = from_image(image);
    EXPECT_EQ(got.shape, expected.shape);
    EXPECT_EQ(got.data, expected.data);
  }
  EXPECT_EQ(from_image({2, 2, {1, 2, 3}}).shape, Shape{0});
}

TEST(FromImage, IsTheInverseOfToImages) {
  const Image image = pictures::gradient(31, 9);
  DQ_ASSERT_OK(const std::vector<Image> back, to_images(from_image(image)));
  EXPECT_EQ(back.at(0).pixels, image.pixels);
}

Image resized(const Image& image, int width, int height) {
  auto r = resize_image(image, width, height);
  EXPECT_TRUE(r.ok()) << (r.ok() ? "" : r.error().message);
  return r.ok() ? *r : Image{};
}

// Grey that grows by `step` from column to column.
Image ramp(int width, int height, double step) {
  Image image{width, height, {}};
  for (int i = 0; i < width * height; ++i)
    image.pixels.insert(image.pixels.end(), 3, static_cast<uint8_t>(std::lround(step * (i % width))));
  return image;
}

TEST(Resize, IdentityIsExact) {
  const Image image = pictures::gradient(33, 20);
  EXPECT_EQ(resized(image, 33, 20).pixels, image.pixels);
}

TEST(Resize, ShrinkingAveragesTheArea) {
  const Image two =
      resized({4, 2, {0, 0, 0, 10, 10, 10, 100, 0, 9, 100, 0, 9, 20, 20, 20, 30, 30, 30, 200, 0, 9, 200, 0, 9}}, 2, 1);
  EXPECT_EQ(two.pixels, (std::vector<uint8_t>{15, 15, 15, 150, 0, 9}));
  const Image thirds =
      resized({3, 1, {0, 0, 0, 90, 90, 90, 240, 240, 240}}, 2, 1);  // (0 + 90/2)/1.5 and (90/2 + 240)/1.5
  EXPECT_EQ(thirds.pixels, (std::vector<uint8_t>{30, 30, 30, 190, 190, 190}));
  const Image image = ramp(240, 2, 1);
  const Image small = resized(image, 50, 1);  // 4.8 columns each: the mean of a ramp is its value at the centre
  for (int x = 0; x < 50; ++x) EXPECT_NEAR(small.pixels[static_cast<size_t>(3 * x)], (x + 0.5) * 4.8 - 0.5, 0.51) << x;
}

TEST(Resize, EnlargingContinuesARamp) {
  // Catmull-Rom reproduces straight lines; only the last two source columns feel the clamped edge.
  const Image large = resized(ramp(20, 3, 12), 70, 5);
  for (int y = 0; y < 5; ++y)
    for (int x = 7; x < 63; ++x)
      EXPECT_NEAR(large.pixels[static_cast<size_t>(3 * (70 * y + x))], ((x + 0.5) * 20 / 70 - 0.5) * 12, 0.51) << x;
  const Image flat = resized({1, 1, {7, 8, 9}}, 5, 4);
  for (size_t i = 0; i < flat.pixels.size(); ++i) EXPECT_EQ(flat.pixels[i], 7 + i % 3);
}

TEST(Resize, EachAxisByItself) {
  const Image image = resized(ramp(20, 40, 12), 40, 10);
  EXPECT_EQ(image.width, 40);
  EXPECT_EQ(image.height, 10);
  for (int x = 4; x < 36; ++x)
    EXPECT_NEAR(image.pixels[static_cast<size_t>(3 * (40 * 5 + x))], ((x + 0.5) / 2 - 0.5) * 12, 0.51);
}

TEST(Resize, RefusesOtherSizes) {
  const Image image = pictures::gradient(4, 4);
  for (const auto& [w, h] : {std::pair(0, 4), std::pair(4, -1), std::pair(16385, 4), std::pair(INT32_MAX, INT32_MAX)}) {
    const auto r = resize_image(image, w, h);
    ASSERT_FALSE(r.ok());
    EXPECT_EQ(r.error().code, ErrorCode::usage);
  }
  EXPECT_FALSE(resize_image({4, 4, {1, 2}}, 2, 2).ok());
  EXPECT_FALSE(resize_image({}, 2, 2).ok());
}

}  // namespace
}  // namespace danqing
