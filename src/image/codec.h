// The three file formats behind danqing/image.h. Inputs are hostile: every function bounds what it allocates by the
// picture's size (at most kMaxSide on each side) and returns an Error for anything damaged. Re-entrant.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "danqing/image.h"

namespace danqing::codec {

inline constexpr int64_t kMaxSide = 16384;

Result<std::string> encode_png(const Image& image, const ImageMetadata& metadata);
Result<Image> decode_png(std::string_view bytes);
Result<ImageMetadata> png_metadata(std::string_view bytes);

Result<std::string> encode_jpeg(const Image& image, const ImageMetadata& metadata, int quality);
Result<Image> decode_jpeg(std::string_view bytes);
Result<ImageMetadata> jpeg_metadata(std::string_view bytes);
int jpeg_orientation(std::string_view bytes);  ///< Exif's 1 to 8

Result<std::string> encode_webp(const Image& image, const ImageMetadata& metadata, int quality);
Result<Image> decode_webp(std::string_view bytes);
Result<ImageMetadata> webp_metadata(std::string_view bytes);

/// Width and height that decoding accepts, else an Error naming the format.
Result<void> check_decoded_size(std::string_view format, int64_t width, int64_t height);

/// A row of `width` pixels of 3 (RGB) or 4 (RGBA, composed on white) bytes to RGB.
void to_rgb_on_white(const uint8_t* row, int width, int channels, uint8_t* rgb);

}  // namespace danqing::codec
