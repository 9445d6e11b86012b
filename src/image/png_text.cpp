// The text chunks of a PNG (W3C PNG 3rd edition, 11.3.3), read without libpng so that nothing else is parsed or
// allocated.
#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/try.h"
#include "image/codec.h"
#include "image/unicode.h"

namespace danqing::codec {
namespace {

constexpr size_t kMaxText = size_t{16} << 20;  // all texts of a file together, after decompression

uint32_t big_endian(std::string_view b) {
  uint32_t v = 0;
  for (const char c : b.substr(0, 4)) v = v << 8 | static_cast<uint8_t>(c);
  return v;
}

// Inflates at most `limit` bytes; nullopt if damaged or larger.
std::optional<std::string> inflate_text(std::string_view packed, size_t limit) {
  z_stream z{};
  if (inflateInit(&z) != Z_OK) return {};
  std::string out;
  char buffer[16384];
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  z.avail_in = static_cast<uInt>(packed.size());
  int status = Z_OK;
  while (status == Z_OK && out.size() <= limit) {
    z.next_out = reinterpret_cast<Bytef*>(buffer);
    z.avail_out = sizeof buffer;
    status = inflate(&z, Z_NO_FLUSH);
    out.append(buffer, sizeof buffer - z.avail_out);
  }
  inflateEnd(&z);
  if (status != Z_STREAM_END || out.size() > limit) return {};
  return out;
}

// Cuts `field` off the front of `data` up to the next NUL; false if there is none.
bool cut(std::string_view& data, std::string_view& field) {
  const size_t nul = data.find('\0');
  if (nul == data.npos) return false;
  field = data.substr(0, nul);
  data.remove_prefix(nul + 1);
  return true;
}

// One text chunk into `out`, its decompressed bytes taken off `budget`.
Result<void> read_text(std::string_view type, std::string_view data, size_t& budget, ImageMetadata& out) {
  const auto damaged = [&] {
    return bad_input("[image] expected a whole {} chunk in the PNG, got a damaged one", type);
  };
  std::string_view key, language, translated;
  if (!cut(data, key)) return damaged();
  bool packed = type == "zTXt";
  if (type == "iTXt") {
    if (data.size() < 2) return damaged();
    packed = data[0] != 0;
    data.remove_prefix(2);
    if (!cut(data, language) || !cut(data, translated)) return damaged();
  } else if (packed) {
    if (data.empty()) return damaged();
    data.remove_prefix(1);  // compression method: deflate is the only one
  }
  std::string text(packed ? std::string_view() : data);
  if (packed) {
    auto inflated = inflate_text(data, budget);
    if (!inflated)
      return bad_input("[image] expected text of at most {} bytes in the PNG's {} chunk '{}', got damaged data or more",
                       budget, type, encode_utf8(decode_utf8(latin1_to_utf8(key.substr(0, 79)))));
    text = std::move(*inflated);
  }
  if (text.size() > budget)
    return bad_input("[image] expected at most {} bytes of text in the PNG, got more", kMaxText);
  budget -= text.size();
  out[latin1_to_utf8(key)] = type == "iTXt" ? encode_utf8(decode_utf8(text)) : latin1_to_utf8(text);
  return {};
}

}  // namespace

Result<ImageMetadata> png_metadata(std::string_view bytes) {
  ImageMetadata out;
  size_t budget = kMaxText;
  for (size_t at = 8; at < bytes.size();) {
    if (bytes.size() - at < 12)
      return bad_input("[image] expected a PNG chunk at byte {}, got the end of the file", at);
    const uint64_t length = big_endian(bytes.substr(at));
    if (length > bytes.size() - at - 12)
      return bad_input("[image] expected {} bytes in the PNG chunk at byte {}, got {}: the file is truncated", length,
                       at, bytes.size() - at - 12);
    const std::string_view type = bytes.substr(at + 4, 4), data = bytes.substr(at + 8, length);
    if (type == "IEND") return out;
    if (type == "tEXt" || type == "iTXt" || type == "zTXt") {
      const std::string_view covered = bytes.substr(at + 4, length + 4);
      const uLong sum = crc32(0, reinterpret_cast<const Bytef*>(covered.data()), static_cast<uInt>(covered.size()));
      if (sum != big_endian(bytes.substr(at + 8 + length)))
        return bad_input("[image] expected the checksum of the PNG's {} chunk at byte {} to match, got another", type,
                         at);
      DQ_CHECK(read_text(type, data, budget, out));
    }
    at += 12 + length;
  }
  return bad_input("[image] expected an IEND chunk in the PNG, got the end of the file: it is truncated");
}

}  // namespace danqing::codec
