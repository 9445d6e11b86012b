// Text metadata of JPEG and WebP: an Exif block whose UserComment holds "parameters", and an XMP packet that holds all.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "danqing/image.h"

namespace danqing::codec {

/// A TIFF structure (big-endian) with one UserComment: "UNICODE\0" and UTF-16BE, as A1111 and piexif write it.
std::string make_exif(std::string_view user_comment);
/// The UserComment as UTF-8; nullopt if there is none or the structure is damaged. Reads both byte orders of the
/// structure and of the text, with or without the "Exif\0\0" prefix.
std::optional<std::string> read_user_comment(std::string_view exif);

/// How a camera was held: 1 (upright) to 8, as Exif numbers it; 1 where nothing sensible is said.
int read_orientation(std::string_view exif);

std::string make_xmp(const ImageMetadata& metadata);
/// The pairs that make_xmp wrote; other packets give none.
ImageMetadata read_xmp(std::string_view packet);

/// XMP's pairs; "parameters" from Exif when XMP has none. Empty views: absent.
ImageMetadata merge(std::string_view exif, std::string_view xmp);

}  // namespace danqing::codec
