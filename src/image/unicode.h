// The text encodings found inside pictures. Lossy in one way only: what is malformed becomes U+FFFD.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace danqing {

std::u32string decode_utf8(std::string_view text);
std::string encode_utf8(std::u32string_view text);
bool is_utf8(std::string_view text);
/// nullopt when a character is above U+00FF.
std::optional<std::string> utf8_to_latin1(std::string_view text);
std::string latin1_to_utf8(std::string_view text);
std::string utf8_to_utf16be(std::string_view text);
/// Stops at a NUL character (padding of Exif fields).
std::string utf16_to_utf8(std::string_view bytes, bool big_endian);

}  // namespace danqing
