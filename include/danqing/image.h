// Pictures in memory and as files.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "danqing/export.h"
#include "danqing/result.h"

namespace danqing {

/// 8-bit RGB, rows from the top, no padding: pixels.size() == 3 * width * height.
struct Image {
  int width = 0, height = 0;
  std::vector<uint8_t> pixels;
};

enum class ImageFormat { png, jpeg, webp };

/// UTF-8 text that travels inside the file. PNG: tEXt (all Latin-1) or iTXt chunks under these keys, 1 to 79 printable
/// Latin-1 characters. JPEG and WebP: an Exif UserComment holds the value of "parameters" (as A1111 writes it) and an
/// XMP packet holds all; a JPEG has room for 64 KB of each.
using ImageMetadata = std::map<std::string, std::string>;

struct EncodeOptions {
  /// JPEG and lossy WebP, 1 to 100. JPEG from 90 on keeps the full colour resolution; WebP 100 is lossless.
  int quality = 95;
};

// All functions are re-entrant: any number of threads.

/// File bytes. Errors (usage): empty or inconsistent image; a size the format cannot hold (JPEG 65500, WebP 16383);
/// metadata that it cannot hold.
DANQING_API Result<std::string> encode_image(const Image& image, ImageFormat format, const ImageMetadata& metadata = {},
                                             const EncodeOptions& options = {});
/// Reads PNG, JPEG or WebP bytes (recognised by content): palette, grey, CMYK and 16-bit become 8-bit RGB, alpha is
/// composed on white; a JPEG is turned upright as its Exif orientation says. At most 16384x16384. Errors: bad_input for anything damaged or truncated, does_not_fit.
DANQING_API Result<Image> decode_image(std::string_view bytes);
/// The embedded text of a picture, without decoding its pixels; empty if there is none. Also reads what other programs
/// wrote: PNG tEXt, iTXt and zTXt, Exif UserComment ("parameters"). At most 16 MiB of text.
DANQING_API Result<ImageMetadata> read_image_metadata(std::string_view bytes);
/// From a file name's extension (".png", ".jpg", ".jpeg", ".webp"); usage error otherwise.
DANQING_API Result<ImageFormat> image_format_of(const std::filesystem::path& path);

}  // namespace danqing
