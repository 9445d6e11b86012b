// Pixels: what other programs wrote, what we write, and what each format can hold.
#include <gmock/gmock.h>

#include <array>
#include <cmath>
#include <thread>

#include "base/file.h"
#include "danqing/image.h"
#include "image/pictures.h"
#include "image/samples.h"
#include "testing/testing.h"

namespace danqing {
namespace {

using pictures::gradient;
using samples::bytes;
using testing::golden;
using ::testing::HasSubstr;

Image decoded(std::string_view file) {
  auto r = decode_image(file);
  EXPECT_TRUE(r.ok()) << (r.ok() ? "" : r.error().message);
  return r.ok() ? *r : Image{};
}

// All pixels of a 5x4 sample against a formula.
template <class F>
void expect_pixels(std::string_view hex, F&& colour) {
  const Image image = decoded(bytes(hex));
  ASSERT_EQ(image.width, 5);
  ASSERT_EQ(image.height, 4);
  for (int y = 0; y < 4; ++y)
    for (int x = 0; x < 5; ++x) {
      const std::array<int, 3> expected = colour(x, y);
      for (size_t c = 0; c < 3; ++c)
        EXPECT_EQ(image.pixels[static_cast<size_t>(3 * (5 * y + x)) + c], expected[c])
            << x << "," << y << " channel " << c;
    }
}

std::array<int, 3> base(int x, int y) { return {50 * x, 60 * y, 20 * x * y}; }
int over_white(int c, int alpha) { return static_cast<int>(std::lround((c * alpha + 255.0 * (255 - alpha)) / 255)); }

TEST(ReadPng, EveryKindOfPixel) {
  expect_pixels(samples::kPngPalette, [](int x, int y) {
    const std::array<int, 3> colours[] = {{255, 0, 0}, {0, 255, 0}, {0, 0, 255}, {10, 20, 30}};
    return colours[(x + y) % 4];
  });
  const auto grey = [](int x, int y) { return std::array<int, 3>{40 * x + 10 * y, 40 * x + 10 * y, 40 * x + 10 * y}; };
  expect_pixels(samples::kPngGrey, grey);
  expect_pixels(samples::kPngGrey16, grey);
  expect_pixels(samples::kPngOneBit, [](int x, int y) {
    const int v = (x + y) % 2 * 255;
    return std::array<int, 3>{v, v, v};
  });
  expect_pixels(samples::kPngAlpha, [](int x, int y) {
    std::array<int, 3> c = base(x, y);
    for (int& v : c) v = over_white(v, 60 * x);
    return c;
  });
  expect_pixels(samples::kPngGreyAlpha, [](int x, int y) {
    const int v = over_white(40 * x + 10 * y, 128);
    return std::array<int, 3>{v, v, v};
  });
  expect_pixels(samples::kPngTransparentColour, [](int x, int y) {
    return x == 0 && y == 0 ? std::array<int, 3>{255, 255, 255} : base(x, y);
  });
  expect_pixels(samples::kPngInterlaced, base);
}

TEST(ReadJpeg, GreyCmykAndProgressive) {
  const Image grey = decoded(bytes(samples::kJpegGrey));
  ASSERT_EQ(grey.pixels.size(), 3u * 64);
  for (const uint8_t v : grey.pixels) EXPECT_NEAR(v, 77, 1);  // one flat block: only the DC term is quantised
  const Image cmyk = decoded(bytes(samples::kJpegCmyk));
  ASSERT_EQ(cmyk.pixels.size(), 3u * 64);
  const int expected[] = {205, 125, 44};  // (255 - C)(255 - K)/255 and so on
  for (size_t i = 0; i < cmyk.pixels.size(); ++i) EXPECT_NEAR(cmyk.pixels[i], expected[i % 3], 1);  // flat again
  const Image progressive = decoded(bytes(samples::kJpegProgressive));
  ASSERT_EQ(progressive.width, 16);
  for (int y = 0; y < 16; ++y)
    for (int x = 0; x < 16;
         ++x)  // quality 80 with halved chroma: measured 5, other decoders may smooth chroma otherwise
      EXPECT_NEAR(progressive.pixels[static_cast<size_t>(3 * (16 * y + x))], 8 * x, 8);
}

/// A JPEG of 16x8 pixels, left half red and right half blue, with an Exif block that says how it was held.
std::string held(int orientation) {
  Image image{16, 8, {}};
  for (int i = 0; i < 16 * 8; ++i)
    for (const uint8_t v : i % 16 < 8 ? std::array<uint8_t, 3>{255, 0, 0} : std::array<uint8_t, 3>{0, 0, 255})
      image.pixels.push_back(v);
  std::string file = *encode_image(image, ImageFormat::jpeg, {}, {100});
  using namespace std::string_literals;
  const std::string exif =
      "Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0"s + static_cast<char>(orientation) + "\0\0\0\0\0\0"s;
  const auto size = static_cast<char>(exif.size() + 2);
  return file.substr(0, 2) + "\xff\xe1\0"s + size + exif + file.substr(2);
}

TEST(ReadJpeg, TurnedUprightAsTheCameraWasHeld) {
  const auto red_at = [](const Image& i, int x, int y) {
    return i.pixels[static_cast<size_t>(3 * (y * i.width + x))] > 128;
  };
  // Where the red half lies: left, right, right, left, top, top, bottom, bottom.
  for (int o = 1; o <= 8; ++o) {
    const auto image = decode_image(held(o));
    ASSERT_TRUE(image.ok()) << o;
    EXPECT_EQ(image->width, o < 5 ? 16 : 8) << o;
    const bool first = o == 1 || o == 4 || o == 5 || o == 6;
    EXPECT_EQ(red_at(*image, 1, 1), first) << o;
    EXPECT_EQ(red_at(*image, image->width - 2, image->height - 2), !first) << o;
  }
  EXPECT_EQ(decode_image(held(0))->width, 16);
  EXPECT_EQ(decode_image(held(9))->width, 16);
}

TEST(ReadWebp, AlphaOnWhiteAndNoAnimation) {
  const Image image = decoded(bytes(samples::kWebpAlpha));
  ASSERT_EQ(image.pixels.size(), 3u * 64);
  for (size_t i = 0; i < image.pixels.size(); ++i)
    EXPECT_EQ(image.pixels[i], over_white(i % 3 == 0 ? 200 : 0, static_cast<int>(i / 3 % 8) * 36)) << i;
  const auto animation = decode_image(bytes(samples::kWebpAnimation));
  ASSERT_FALSE(animation.ok());
  EXPECT_THAT(animation.error().message, HasSubstr("animation"));
}

TEST(ReadPng, PicturesOfThePipelineAreTheirArrays) {
  const std::filesystem::path folder = testing::data("fixtures/ernie-tiny") / "golden/png";
  const auto same = [&](const std::string& file, const Tensor& u8, size_t index, size_t width, size_t height) {
    DQ_ASSERT_OK(const std::string png, read_text(folder / file));
    const Image image = decoded(png);
    const size_t n = 3 * width * height;
    ASSERT_EQ(image.pixels.size(), n) << file;
    ASSERT_EQ(static_cast<size_t>(image.width), width);
    for (size_t i = 0; i < n; ++i) ASSERT_EQ(image.pixels[i], u8.data[index * n + i]) << file << " at " << i;
  };
  for (const std::string run : {"cfg4", "cfg4_neg", "g1", "batch"}) {
    const Tensor u8 = golden("ernie-tiny/golden/run_" + run + "_f32").f32("image_u8");  // [B, H, W, 3]
    for (int64_t i = 0; i < u8.size(0); ++i)
      same(run + "_" + std::to_string(i) + "_f32.png", u8, static_cast<size_t>(i), static_cast<size_t>(u8.size(2)),
           static_cast<size_t>(u8.size(1)));
  }
  const auto vae = golden("ernie-tiny/golden/vae");
  same("encode_48x32.png", vae.f32("encode.48x32.image_u8"), 0, 32, 48);
  same("encode_64x96.png", vae.f32("encode.64x96.image_u8"), 0, 96, 64);
}

TEST(WriteImage, LosslessFormatsKeepEveryPixel) {
  for (const auto& [width, height] : {std::pair(1, 1), std::pair(37, 23), std::pair(256, 3)}) {
    const Image image = gradient(width, height);
    for (const ImageFormat format : {ImageFormat::png, ImageFormat::webp}) {
      DQ_ASSERT_OK(const std::string file, encode_image(image, format, {{"parameters", "x"}}, {.quality = 100}));
      const Image back = decoded(file);
      EXPECT_EQ(back.width, width);
      EXPECT_EQ(back.height, height);
      EXPECT_EQ(back.pixels, image.pixels);
    }
  }
}

double mean_difference(const Image& a, const Image& b) {
  EXPECT_EQ(a.pixels.size(), b.pixels.size());
  double sum = 0;
  for (size_t i = 0; i < a.pixels.size(); ++i) sum += std::abs(a.pixels[i] - b.pixels[i]);
  return sum / static_cast<double>(a.pixels.size());
}

TEST(WriteImage, LossyFormatsStayClose) {
  const Image image = gradient(64, 48);
  for (const ImageFormat format : {ImageFormat::jpeg, ImageFormat::webp}) {
    DQ_ASSERT_OK(const std::string fine, encode_image(image, format, {}, {.quality = 95}));
    DQ_ASSERT_OK(const std::string coarse, encode_image(image, format, {}, {.quality = 20}));
    EXPECT_LT(coarse.size(), fine.size());
    EXPECT_LT(mean_difference(decoded(fine), image), 2);  // measured: JPEG 0.52, WebP (halved chroma) 1.46
    EXPECT_GT(mean_difference(decoded(coarse), image), mean_difference(decoded(fine), image));
  }
}

TEST(WriteImage, RefusesWhatCannotBeWritten) {
  const auto usage = [](const Image& image, ImageFormat format, const ImageMetadata& metadata, int quality,
                        std::string_view says) {
    const auto r = encode_image(image, format, metadata, {.quality = quality});
    ASSERT_FALSE(r.ok()) << says;
    EXPECT_EQ(r.error().code, ErrorCode::usage) << says;
    EXPECT_THAT(r.error().message, HasSubstr(std::string(says)));
  };
  const Image ok = gradient(4, 4);
  usage({}, ImageFormat::png, {}, 95, "0x0");
  usage({-1, 1, {}}, ImageFormat::png, {}, 95, "-1x1");
  usage({4, 4, std::vector<uint8_t>(47)}, ImageFormat::jpeg, {}, 95, "got 47 for 4x4");
  usage(ok, ImageFormat::jpeg, {}, 0, "quality");
  usage(ok, ImageFormat::webp, {}, 101, "quality");
  usage(gradient(65501, 1), ImageFormat::jpeg, {}, 95, "65501x1");
  usage(gradient(1, 16384), ImageFormat::webp, {}, 95, "1x16384");
  usage(ok, ImageFormat::png, {{"", "x"}}, 95, "key");
  usage(ok, ImageFormat::png, {{std::string(80, 'k'), "x"}}, 95, "key");
  usage(ok, ImageFormat::png, {{"\xe4\xb8\xb9", "x"}}, 95, "key");
  usage(ok, ImageFormat::png, {{"k", std::string("a\0b", 3)}}, 95, "NUL");
  usage(ok, ImageFormat::jpeg, {{"parameters", std::string(40000, 'p')}}, 95, "65533");
  EXPECT_TRUE(encode_image(gradient(20000, 1), ImageFormat::png).ok());
}

TEST(ImageFormat, ComesFromTheExtension) {
  for (const auto& [file, format] :
       {std::pair("a.png", ImageFormat::png), std::pair("d/b.JPG", ImageFormat::jpeg),
        std::pair("c.jpeg", ImageFormat::jpeg), std::pair("x.y.WebP", ImageFormat::webp)}) {
    DQ_ASSERT_OK(const ImageFormat f, image_format_of(file));
    EXPECT_EQ(f, format) << file;
  }
  for (const char* file : {"a", "a.gif", ".png", ""}) {
    const auto r = image_format_of(file);
    ASSERT_FALSE(r.ok()) << file;
    EXPECT_EQ(r.error().code, ErrorCode::usage);
  }
}

TEST(WriteImage, IsReentrant) {
  const Image image = gradient(64, 64);
  std::vector<std::string> files(8);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < files.size(); ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 5; ++i) {
        const ImageFormat format = t % 2 ? ImageFormat::jpeg : ImageFormat::png;
        files[t] = *encode_image(image, format, {{"parameters", "\xe4\xb8\xb9"}});
        EXPECT_FALSE(decode_image(files[t].substr(0, files[t].size() / 2)).ok());
        EXPECT_TRUE(decode_image(files[t]).ok());
      }
    });
  for (std::thread& t : threads) t.join();
  for (size_t t = 2; t < files.size(); ++t) EXPECT_EQ(files[t], files[t % 2]);
}

}  // namespace
}  // namespace danqing
