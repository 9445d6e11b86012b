// Text inside pictures: ours there and back, and what other programs wrote.
#include <gmock/gmock.h>

#include "danqing/image.h"
#include "image/exif_xmp.h"
#include "image/pictures.h"
#include "image/samples.h"
#include "image/unicode.h"
#include "testing/testing.h"

namespace danqing {
namespace {

using pictures::gradient;
using samples::bytes;
using ::testing::HasSubstr;
using ::testing::Not;

ImageMetadata metadata_of(std::string_view file) {
  auto r = read_image_metadata(file);
  EXPECT_TRUE(r.ok()) << (r.ok() ? "" : r.error().message);
  return r.ok() ? *r : ImageMetadata{};
}

const ImageMetadata kTexts = {
    {"parameters",
     "一只黑白相间的中华田园犬, caf\xc3\xa9 \xf0\x9f\x90\x95\nNegative prompt: 模糊\nSteps: 8, Size: 64x64"},
    {"danqing", R"({"prompt": "<b>\"a & b\"</b>", "lines": "x\r\ny"})"},
    {"plain", "a < b && c > d \r\n\t\"quoted\" 'text' &amp;"},
    {"empty", ""},
};

TEST(Metadata, SurvivesInEveryFormat) {
  for (const ImageFormat format : {ImageFormat::png, ImageFormat::jpeg, ImageFormat::webp}) {
    DQ_ASSERT_OK(const std::string file, encode_image(gradient(16, 16), format, kTexts));
    EXPECT_EQ(metadata_of(file), kTexts) << static_cast<int>(format);
    EXPECT_TRUE(decode_image(file).ok());
    DQ_ASSERT_OK(const std::string bare, encode_image(gradient(16, 16), format));
    EXPECT_TRUE(metadata_of(bare).empty());
  }
}

TEST(Metadata, PngUsesTheChunkThatOtherReadersKnow) {
  DQ_ASSERT_OK(const std::string latin,
               encode_image(gradient(2, 2), ImageFormat::png, {{"parameters", "caf\xc3\xa9"}}));
  EXPECT_THAT(latin, HasSubstr(std::string("tEXtparameters\0caf\xe9", 19)));
  DQ_ASSERT_OK(const std::string wide,
               encode_image(gradient(2, 2), ImageFormat::png, {{"parameters", "\xe4\xb8\xb9"}}));
  EXPECT_THAT(wide, HasSubstr(std::string("iTXtparameters\0\0\0\0\0\xe4\xb8\xb9", 22)));
  EXPECT_THAT(wide, Not(HasSubstr("tEXt")));
}

TEST(Metadata, JpegCarriesAnExifUserCommentLikeA1111) {
  DQ_ASSERT_OK(const std::string file,
               encode_image(gradient(8, 8), ImageFormat::jpeg, {{"parameters", "\xe4\xb8\xb9 a"}}));
  EXPECT_THAT(file, HasSubstr(std::string("UNICODE\0\x4e\x39\0 \0a", 14)));
}

TEST(Metadata, MalformedUtf8BecomesReplacementCharacters) {
  for (const ImageFormat format : {ImageFormat::png, ImageFormat::jpeg, ImageFormat::webp}) {
    DQ_ASSERT_OK(const std::string file, encode_image(gradient(8, 8), format, {{"parameters", "a\xff\xc3(b"}}));
    EXPECT_EQ(metadata_of(file).at("parameters"), "a\xef\xbf\xbd\xef\xbf\xbd(b");
  }
}

TEST(Metadata, ReadsWhatPillowWrote) {
  EXPECT_EQ(metadata_of(bytes(samples::kPngParametersZh)).at("parameters"), samples::kParametersZh);
  EXPECT_EQ(metadata_of(bytes(samples::kPngParametersLatin1)).at("parameters"), "a caf\xc3\xa9\nSteps: 20");
  const ImageMetadata zipped = metadata_of(bytes(samples::kPngParametersZipped));
  EXPECT_EQ(zipped.at("parameters"), samples::kParametersZh);
  EXPECT_EQ(zipped.at("Comment"), std::string(300, 'x'));
}

TEST(Metadata, ReadsUserCommentsOfEitherByteOrder) {
  const std::string big = utf8_to_utf16be(samples::kParametersZh);
  std::string little = big;
  for (size_t i = 0; i < little.size(); i += 2) std::swap(little[i], little[i + 1]);
  const std::string unicode("UNICODE\0", 8), jpeg = bytes(samples::kJpegGrey);
  const auto read = [&](bool structure_is_big, const std::string& comment) {
    const ImageMetadata m = metadata_of(pictures::with_exif(jpeg, pictures::exif(structure_is_big, comment)));
    return m.count("parameters") ? m.at("parameters") : "absent";
  };
  for (const bool structure_is_big : {true, false}) {
    EXPECT_EQ(read(structure_is_big, unicode + big), samples::kParametersZh);
    EXPECT_EQ(read(structure_is_big, unicode + little), samples::kParametersZh);
    EXPECT_EQ(read(structure_is_big, unicode + "\xfe\xff" + big), samples::kParametersZh);
    EXPECT_EQ(read(structure_is_big, unicode + "\xff\xfe" + little), samples::kParametersZh);
    EXPECT_EQ(read(structure_is_big, std::string("ASCII\0\0\0", 8) + "a cat"), "a cat");
    EXPECT_EQ(read(structure_is_big, std::string(8, '\0') + "caf\xc3\xa9"), "caf\xc3\xa9");
    EXPECT_EQ(read(structure_is_big, std::string("JIS\0\0\0\0\0", 8) + "x"), "absent");
  }
  EXPECT_EQ(read(true, unicode + std::string("\x4e\x39", 2)), "\xe4\xb8\xb9");  // no zero byte: the structure's order
  EXPECT_EQ(read(false, unicode + std::string("\x39\x4e", 2)), "\xe4\xb8\xb9");
  EXPECT_EQ(read(true, unicode + std::string("\xd8\x3d\0a", 4)),
            "\xef\xbf\xbd"
            "a");  // a lone surrogate
}

TEST(Metadata, ExifIsReadWithAndWithoutItsPrefixAndDamagedOnesAreIgnored) {
  const std::string tiff = pictures::exif(true, std::string("UNICODE\0\0a", 10));
  EXPECT_EQ(codec::read_user_comment(tiff), "a");
  EXPECT_EQ(codec::read_user_comment(std::string("Exif\0\0", 6) + tiff), "a");
  for (size_t n = 0; n < tiff.size(); ++n) EXPECT_FALSE(codec::read_user_comment(tiff.substr(0, n))) << n;
  for (size_t at = 4; at < 44; ++at) {  // every byte of the structure, set high: offsets and counts of any size
    std::string damaged = tiff;
    damaged[at] = '\xff';
    const auto r = codec::read_user_comment(damaged);
    EXPECT_LE(r.value_or("").size(), tiff.size());
  }
}

TEST(Metadata, EncodingsAreConverted) {
  EXPECT_EQ(utf8_to_utf16be("\xf0\x9f\x90\x95"), std::string("\xd8\x3d\xdc\x15"));
  EXPECT_EQ(utf16_to_utf8(utf8_to_utf16be("\xf0\x9f\x90\x95 \xe4\xb8\xb9"), true), "\xf0\x9f\x90\x95 \xe4\xb8\xb9");
  EXPECT_TRUE(is_utf8("\xed\x9f\xbf\xf4\x8f\xbf\xbf"));
  for (const std::string bad : {"\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\x80", "\xe4\xb8", "\xf5\x80\x80\x80"})
    EXPECT_FALSE(is_utf8(bad));
  EXPECT_EQ(utf8_to_latin1("caf\xc3\xa9"), "caf\xe9");
  EXPECT_FALSE(utf8_to_latin1("\xe4\xb8\xb9").has_value());
}

}  // namespace
}  // namespace danqing
