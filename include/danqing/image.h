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

/// Text that travels inside the file: PNG iTXt/tEXt chunks under these keys; JPEG and WebP: Exif UserComment holds the
/// value of "parameters" and an XMP packet holds all.
using ImageMetadata = std::map<std::string, std::string>;

struct EncodeOptions {
  int quality = 95;   ///< JPEG and lossy WebP, 1 to 100; WebP 100 is lossless
};

/// File bytes. Errors: empty or inconsistent image; a size the format cannot hold (JPEG 65535, WebP 16383).
DANQING_API Result<std::string> encode_image(const Image& image, ImageFormat format, const ImageMetadata& metadata = {},
                                             const EncodeOptions& options = {});
/// Reads PNG, JPEG or WebP bytes (recognised by content); alpha is composed on white, grey widened. At most 16384x16384.
DANQING_API Result<Image> decode_image(std::string_view bytes);
/// The embedded text of a picture, without decoding its pixels.
DANQING_API Result<ImageMetadata> read_image_metadata(std::string_view bytes);
/// From a file name's extension (".png", ".jpg", ".jpeg", ".webp"); usage error otherwise.
DANQING_API Result<ImageFormat> image_format_of(const std::filesystem::path& path);

}  // namespace danqing
