// Pictures and files that the image tests make themselves.
#pragma once
#include <zlib.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include "danqing/image.h"

namespace danqing::pictures {

/// A smooth picture with a hard edge: every channel differs, no symmetry.
inline Image gradient(int width, int height) {
  Image image{width, height, {}};
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x) {
      image.pixels.push_back(static_cast<uint8_t>(255 * x / width));
      image.pixels.push_back(static_cast<uint8_t>(255 * y / height));
      image.pixels.push_back(static_cast<uint8_t>(x > width / 3 ? 200 : 40));
    }
  return image;
}

inline std::string big_endian(uint32_t v, int bytes = 4) {
  std::string out;
  for (int i = bytes - 1; i >= 0; --i) out.push_back(static_cast<char>(v >> 8 * i & 0xff));
  return out;
}

inline std::string little_endian(uint32_t v, int bytes = 4) {
  const std::string big = big_endian(v, bytes);
  return {big.rbegin(), big.rend()};
}

inline std::string png_chunk(const std::string& type, const std::string& data) {
  const std::string covered = type + data;
  const uLong sum = crc32(0, reinterpret_cast<const Bytef*>(covered.data()), static_cast<uInt>(covered.size()));
  return big_endian(static_cast<uint32_t>(data.size())) + covered + big_endian(static_cast<uint32_t>(sum));
}

inline std::string deflated(const std::string& data) {
  uLongf size = compressBound(data.size());
  std::string out(size, '\0');
  compress(reinterpret_cast<Bytef*>(out.data()), &size, reinterpret_cast<const Bytef*>(data.data()), data.size());
  out.resize(size);
  return out;
}

inline std::string png_header(uint32_t width, uint32_t height) {
  return "\x89PNG\r\n\x1a\n" +
         png_chunk("IHDR", big_endian(width) + big_endian(height) + std::string("\x08\x02\0\0\0", 5));
}

/// A TIFF structure of either byte order with a UserComment of these bytes.
inline std::string exif(bool big, const std::string& comment) {
  const auto put = [&](uint32_t v, int bytes) { return big ? big_endian(v, bytes) : little_endian(v, bytes); };
  const auto size = static_cast<uint32_t>(comment.size());
  return (big ? "MM" : "II") + put(42, 2) + put(8, 4) + put(1, 2) + put(0x8769, 2) + put(4, 2) + put(1, 4) +
         put(26, 4) + put(0, 4) + put(1, 2) + put(0x9286, 2) + put(7, 2) + put(size, 4) + put(44, 4) + put(0, 4) +
         comment;
}

/// `jpeg` with an Exif segment behind its first two bytes.
inline std::string with_exif(const std::string& jpeg, const std::string& tiff) {
  const std::string content = std::string("Exif\0\0", 6) + tiff;
  return jpeg.substr(0, 2) + "\xff\xe1" + big_endian(static_cast<uint32_t>(content.size() + 2), 2) + content +
         jpeg.substr(2);
}

}  // namespace danqing::pictures
