#include "danqing/image.h"

#include <algorithm>
#include <new>
#include <stdexcept>

#include "base/try.h"
#include "image/codec.h"

namespace danqing {
namespace {

using namespace std::string_view_literals;

Result<ImageFormat> sniff(std::string_view bytes) {
  if (bytes.substr(0, 8) == "\x89PNG\r\n\x1a\n"sv) return ImageFormat::png;
  if (bytes.substr(0, 3) == "\xff\xd8\xff"sv) return ImageFormat::jpeg;
  if (bytes.substr(0, 4) == "RIFF"sv && bytes.size() >= 12 && bytes.substr(8, 4) == "WEBP"sv) return ImageFormat::webp;
  return bad_input("[image] expected a PNG, JPEG or WebP file, got {}", bytes.empty() ? "an empty one" : "other data");
}

// Runs one format's function; running out of memory, which a large picture may, is an Error like any other.
template <class T, class F>
Result<T> guarded(F&& f) {
  try {
    return f();
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::does_not_fit, "[image] expected memory for the picture, got none; use a smaller one");
  } catch (const std::length_error&) {
    return fail(ErrorCode::does_not_fit, "[image] expected a picture that fits into memory, got a larger one");
  }
}

}  // namespace

namespace codec {

Result<void> check_decoded_size(std::string_view format, int64_t width, int64_t height) {
  if (width >= 1 && height >= 1 && width <= kMaxSide && height <= kMaxSide) return {};
  return bad_input("[image] expected a {0} of 1x1 to {1}x{1} pixels, got {2}x{3}", format, kMaxSide, width, height);
}

void to_rgb_on_white(const uint8_t* row, int width, int channels, uint8_t* rgb) {
  if (channels == 3) {
    std::copy_n(row, static_cast<size_t>(width) * 3, rgb);
    return;
  }
  for (int x = 0; x < width; ++x, row += 4, rgb += 3) {
    const int alpha = row[3];
    for (int c = 0; c < 3; ++c) rgb[c] = static_cast<uint8_t>((row[c] * alpha + 255 * (255 - alpha) + 127) / 255);
  }
}

}  // namespace codec

Result<std::string> encode_image(const Image& image, ImageFormat format, const ImageMetadata& metadata,
                                 const EncodeOptions& options) {
  const bool positive = image.width > 0 && image.height > 0;
  if (!positive ||
      image.pixels.size() != size_t{3} * static_cast<size_t>(image.width) * static_cast<size_t>(image.height))
    return usage_error("[image] expected 3*width*height bytes of pixels, got {} for {}x{}", image.pixels.size(),
                       image.width, image.height);
  if (options.quality < 1 || options.quality > 100)
    return usage_error("[image] expected a quality from 1 to 100, got {}", options.quality);
  return guarded<std::string>([&]() -> Result<std::string> {
    switch (format) {
      case ImageFormat::png: return codec::encode_png(image, metadata);
      case ImageFormat::jpeg: return codec::encode_jpeg(image, metadata, options.quality);
      case ImageFormat::webp: return codec::encode_webp(image, metadata, options.quality);
    }
    return usage_error("[image] expected a known format, got number {}", static_cast<int>(format));
  });
}

/// Turns and mirrors what a camera stored as it was held. Exif: 2 to 4 keep the sides, 5 to 8 exchange them.
static Image upright(Image image, int orientation) {
  if (orientation == 1) return image;
  const bool exchanged = orientation >= 5;
  const int w = image.width, h = image.height;
  Image out{exchanged ? h : w, exchanged ? w : h, std::vector<uint8_t>(image.pixels.size())};
  for (int y = 0; y < out.height; ++y)
    for (int x = 0; x < out.width; ++x) {
      int from_x = exchanged ? y : x, from_y = exchanged ? x : y;
      if (orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8) from_x = w - 1 - from_x;
      if (orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7) from_y = h - 1 - from_y;
      const size_t from = 3 * (static_cast<size_t>(from_y) * static_cast<size_t>(w) + static_cast<size_t>(from_x));
      const size_t to = 3 * (static_cast<size_t>(y) * static_cast<size_t>(out.width) + static_cast<size_t>(x));
      std::copy_n(image.pixels.begin() + static_cast<std::ptrdiff_t>(from), 3,
                  out.pixels.begin() + static_cast<std::ptrdiff_t>(to));
    }
  return out;
}

Result<Image> decode_image(std::string_view bytes) {
  DQ_TRY(const ImageFormat format, sniff(bytes));
  return guarded<Image>([&]() -> Result<Image> {
    if (format == ImageFormat::png) return codec::decode_png(bytes);
    if (format == ImageFormat::webp) return codec::decode_webp(bytes);
    DQ_TRY(Image image, codec::decode_jpeg(bytes));
    return upright(std::move(image), codec::jpeg_orientation(bytes));
  });
}

Result<ImageMetadata> read_image_metadata(std::string_view bytes) {
  DQ_TRY(const ImageFormat format, sniff(bytes));
  return guarded<ImageMetadata>([&]() -> Result<ImageMetadata> {
    if (format == ImageFormat::png) return codec::png_metadata(bytes);
    return format == ImageFormat::jpeg ? codec::jpeg_metadata(bytes) : codec::webp_metadata(bytes);
  });
}

Result<ImageFormat> image_format_of(const std::filesystem::path& path) {
  std::string extension = path.extension().string();
  for (char& c : extension)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  if (extension == ".png") return ImageFormat::png;
  if (extension == ".jpg" || extension == ".jpeg") return ImageFormat::jpeg;
  if (extension == ".webp") return ImageFormat::webp;
  return usage_error("[image] expected a file name ending in .png, .jpg, .jpeg or .webp, got '{}'", path.string());
}

}  // namespace danqing
