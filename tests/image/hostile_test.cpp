// Files that nobody meant well with: cut, damaged, lying about their size, packed a million to one.
#include <gmock/gmock.h>

#include <cstdio>
#include <cstdlib>
#include <random>
// jpeglib.h needs what <cstdio> declares.
// clang-format off
#include <jpeglib.h>
// clang-format on

#include "danqing/image.h"
#include "image/pictures.h"
#include "image/samples.h"
#include "testing/testing.h"

namespace danqing {
namespace {

using namespace pictures;
using samples::bytes;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Whatever comes in: a consistent picture, or an Error that starts with its stage. Returns whether it was a picture.
bool is_handled(std::string_view file) {
  const auto metadata = read_image_metadata(file);
  if (!metadata.ok()) {
    EXPECT_THAT(metadata.error().message, StartsWith("[image] "));
  }
  const auto image = decode_image(file);
  if (!image.ok()) {
    EXPECT_THAT(image.error().message, StartsWith("[image] "));
    EXPECT_TRUE(image.error().code == ErrorCode::bad_input || image.error().code == ErrorCode::does_not_fit);
    return false;
  }
  EXPECT_EQ(image->pixels.size(), size_t{3} * static_cast<size_t>(image->width) * static_cast<size_t>(image->height));
  return true;
}

std::vector<std::string> good_files(ImageFormat format) {
  const ImageMetadata metadata = {{"parameters", "\xe4\xb8\xb9 cat"}, {"danqing", "{}"}};
  std::vector<std::string> files;
  for (const int quality : {80, 100})
    files.push_back(*encode_image(gradient(24, 17), format, metadata, {.quality = quality}));
  if (format == ImageFormat::png) {
    for (const auto hex :
         {samples::kPngPalette, samples::kPngInterlaced, samples::kPngParametersZipped, samples::kPngGrey16})
      files.push_back(bytes(hex));
  } else if (format == ImageFormat::jpeg) {
    for (const auto hex : {samples::kJpegCmyk, samples::kJpegProgressive}) files.push_back(bytes(hex));
  } else {
    for (const auto hex : {samples::kWebpAlpha, samples::kWebpAnimation}) files.push_back(bytes(hex));
  }
  return files;
}

class EveryFormat : public ::testing::TestWithParam<ImageFormat> {};

TEST_P(EveryFormat, TruncatedAnywhere) {
  for (const std::string& file : good_files(GetParam())) {
    const size_t step = std::max<size_t>(1, file.size() / 150);
    for (size_t n = 0; n < file.size(); n += step) is_handled(file.substr(0, n));
    EXPECT_FALSE(is_handled(file.substr(0, file.size() / 2)));
    EXPECT_FALSE(is_handled(file.substr(0, 12)));
  }
}

TEST_P(EveryFormat, FlippedBytes) {
  std::mt19937 random(static_cast<unsigned>(GetParam()) + 1);
  for (const std::string& file : good_files(GetParam()))
    for (int variant = 0; variant < 200; ++variant) {
      std::string damaged = file;
      for (unsigned i = 0; i <= random() % 3; ++i) damaged[random() % file.size()] = static_cast<char>(random());
      is_handled(damaged);
    }
}

TEST_P(EveryFormat, GarbageBehindAGoodStart) {
  std::mt19937 random(7);
  for (const std::string& file : good_files(GetParam()))
    for (size_t keep : {12u, 30u, 60u, 100u}) {
      std::string damaged = file.substr(0, keep);
      for (int i = 0; i < 500; ++i) damaged.push_back(static_cast<char>(random()));
      is_handled(damaged);
    }
}

INSTANTIATE_TEST_SUITE_P(Hostile, EveryFormat,
                         ::testing::Values(ImageFormat::png, ImageFormat::jpeg, ImageFormat::webp));

void expect_refused(std::string_view file, const std::string& says) {
  const auto image = decode_image(file);
  ASSERT_FALSE(image.ok()) << says;
  EXPECT_EQ(image.error().code, ErrorCode::bad_input);
  EXPECT_THAT(image.error().message, HasSubstr(says));
}

TEST(Hostile, OtherFiles) {
  expect_refused("", "empty");
  expect_refused("GIF89a..........", "expected a PNG, JPEG or WebP");
  expect_refused("<!DOCTYPE html><html>", "expected a PNG, JPEG or WebP");
  expect_refused("RIFF\x04", "expected a PNG, JPEG or WebP");
  EXPECT_FALSE(read_image_metadata("").ok());
}

TEST(Hostile, SizesThatTheFileCannotHold) {
  const std::string pixels = png_chunk("IDAT", deflated(std::string(1000, '\0'))) + png_chunk("IEND", "");
  expect_refused(png_header(16384, 16384) + pixels, "cannot hold them");
  expect_refused(png_header(16385, 1) + pixels, "PNG");
  expect_refused(png_header(0x7fffffff, 0x7fffffff) + pixels, "PNG");
  expect_refused(png_header(0, 5) + pixels, "PNG");
  expect_refused(png_header(100, 100) + pixels, "100x100");  // fewer rows than declared
  std::string jpeg = bytes(samples::kJpegGrey);
  const size_t frame = jpeg.find("\xff\xc0");
  ASSERT_NE(frame, std::string::npos);
  jpeg.replace(frame + 5, 4, "\xff\xdc\xff\xdc");  // 65500x65500
  expect_refused(jpeg, "16384x16384");
}

TEST(Hostile, TextBombs) {
  const std::string million = deflated(std::string(size_t{64} << 20, 'x'));  // 64 MiB in 64 KiB
  const std::string picture = png_header(1, 1), end = png_chunk("IEND", "");
  for (const std::string& chunk : {png_chunk("zTXt", "Comment" + std::string(2, '\0') + million),
                                   png_chunk("iTXt", "Comment" + std::string("\0\1\0\0\0", 5) + million)}) {
    const auto r = read_image_metadata(picture + chunk + end);
    ASSERT_FALSE(r.ok());
    EXPECT_THAT(r.error().message, HasSubstr("'Comment'"));
  }
  // Many chunks that are each small enough share one allowance.
  std::string many = picture;
  for (int i = 0; i < 40; ++i)
    many +=
        png_chunk("zTXt", "k" + std::to_string(i) + std::string(2, '\0') + deflated(std::string(size_t{1} << 20, 'y')));
  EXPECT_FALSE(read_image_metadata(many + end).ok());
}

TEST(Hostile, ChunksThatLie) {
  const std::string picture = png_header(1, 1), end = png_chunk("IEND", "");
  EXPECT_TRUE(read_image_metadata(picture + end)->empty());
  for (const std::string& tail : {
           big_endian(0xffffffff) + "tEXt",                                     // longer than the file
           big_endian(100) + "tEXtparameters",                                  // cut
           png_chunk("tEXt", "no separator") + end,                             // no NUL
           png_chunk("iTXt", std::string("k\0", 2)) + end,                      // fields missing
           png_chunk("zTXt", std::string("k\0", 2)) + end,                      // no method
           png_chunk("zTXt", std::string("k\0\0notzlib", 10)) + end,            // damaged data
           png_chunk("tEXt", std::string("k\0v", 3)).replace(8, 1, "X") + end,  // checksum
           std::string("\0\0\0", 3),                                            // half a length
       })
    EXPECT_FALSE(read_image_metadata(picture + tail).ok());
}

// A valid progressive file with one scan for each coefficient of each channel, each a pass over the picture.
std::string jpeg_of_190_scans() {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* data = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &data, &size);
  info.image_width = info.image_height = 8;
  info.input_components = 3;
  info.in_color_space = JCS_RGB;
  jpeg_set_defaults(&info);
  std::vector<jpeg_scan_info> scans = {{3, {0, 1, 2, 0}, 0, 0, 0, 0}};
  for (int channel = 0; channel < 3; ++channel)
    for (int k = 1; k < 64; ++k) scans.push_back({1, {channel, 0, 0, 0}, k, k, 0, 0});
  info.scan_info = scans.data();
  info.num_scans = static_cast<int>(scans.size());
  jpeg_start_compress(&info, TRUE);
  std::vector<uint8_t> row(24, 100);
  uint8_t* rows = row.data();
  while (info.next_scanline < 8) jpeg_write_scanlines(&info, &rows, 1);
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  std::string out(reinterpret_cast<const char*>(data), size);
  std::free(data);
  return out;
}

TEST(Hostile, JpegWithEndlessScans) { expect_refused(jpeg_of_190_scans(), "more than 100 scans"); }

}  // namespace
}  // namespace danqing
