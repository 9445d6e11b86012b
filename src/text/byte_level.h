// The byte alphabet of byte-level BPE: each of the 256 bytes has a printable character (Radford et al. 2019, GPT-2).
#pragma once
#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace danqing::byte_level {

/// Printable ASCII and Latin-1 stand for themselves, the other 68 bytes for U+0100 and up.
const std::array<char32_t, 256>& alphabet();
/// Each byte of `bytes` as its character, in UTF-8.
void append_encoded(std::string& out, std::string_view bytes);
/// The bytes that a token's characters stand for; nothing if one of them is outside the alphabet.
std::optional<std::string> decoded(std::string_view token);

}  // namespace danqing::byte_level
