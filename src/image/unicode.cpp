#include "image/unicode.h"

#include <cstdint>

namespace danqing {
namespace {

constexpr char32_t kReplacement = 0xfffd;

// One character from `text` at `at`, which is advanced; nullopt if malformed (then by the bytes that belong together).
std::optional<char32_t> next_utf8(std::string_view text, size_t& at) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(at++);
  if (lead < 0x80) return lead;
  const int more = lead >= 0xc2 && lead <= 0xdf ? 1 : (lead & 0xf0) == 0xe0 ? 2 : lead >= 0xf0 && lead <= 0xf4 ? 3 : 0;
  if (more == 0) return {};
  char32_t c = lead & (0x3f >> more);
  for (int i = 0; i < more; ++i) {
    if (at >= text.size()) return {};
    const uint8_t next = byte(at);
    // The second byte excludes overlong forms, surrogates and what lies beyond U+10FFFF (Unicode 15, table 3-7).
    const uint8_t low = i > 0 ? 0x80 : lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    const uint8_t high = i > 0 ? 0xbf : lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    if (next < low || next > high) return {};
    c = (c << 6) | (next & 0x3f);
    ++at;
  }
  return c;
}

}  // namespace

std::u32string decode_utf8(std::string_view text) {
  std::u32string out;
  for (size_t at = 0; at < text.size();) out.push_back(next_utf8(text, at).value_or(kReplacement));
  return out;
}

bool is_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();)
    if (!next_utf8(text, at)) return false;
  return true;
}

std::string encode_utf8(std::u32string_view text) {
  std::string out;
  const auto put = [&](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  for (char32_t c : text) {
    if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) c = kReplacement;
    if (c < 0x80) {
      put(c);
      continue;
    }
    if (c < 0x800) {
      put(0xc0 | c >> 6);
    } else {
      if (c < 0x10000) {
        put(0xe0 | c >> 12);
      } else {
        put(0xf0 | c >> 18);
        put(0x80 | (c >> 12 & 0x3f));
      }
      put(0x80 | (c >> 6 & 0x3f));
    }
    put(0x80 | (c & 0x3f));
  }
  return out;
}

std::optional<std::string> utf8_to_latin1(std::string_view text) {
  std::string out;
  for (const char32_t c : decode_utf8(text)) {
    if (c > 0xff) return {};
    out.push_back(static_cast<char>(c));
  }
  return out;
}

std::string latin1_to_utf8(std::string_view text) {
  std::u32string wide;
  for (const char c : text) wide.push_back(static_cast<uint8_t>(c));
  return encode_utf8(wide);
}

std::string utf8_to_utf16be(std::string_view text) {
  std::string out;
  const auto unit = [&](uint32_t u) { out += {static_cast<char>(u >> 8), static_cast<char>(u & 0xff)}; };
  for (const char32_t c : decode_utf8(text)) {
    if (c < 0x10000) {
      unit(c);
    } else {
      unit(0xd800 + ((c - 0x10000) >> 10));
      unit(0xdc00 + ((c - 0x10000) & 0x3ff));
    }
  }
  return out;
}

std::string utf16_to_utf8(std::string_view bytes, bool big_endian) {
  const auto unit = [&](size_t i) -> char32_t {
    const auto a = static_cast<uint8_t>(bytes[i]), b = static_cast<uint8_t>(bytes[i + 1]);
    return big_endian ? char32_t(a << 8 | b) : char32_t(b << 8 | a);
  };
  std::u32string out;
  for (size_t i = 0; i + 1 < bytes.size(); i += 2) {
    char32_t c = unit(i);
    if (c == 0) break;
    if (c >= 0xd800 && c < 0xdc00 && i + 3 < bytes.size()) {
      const char32_t low = unit(i + 2);
      if (low >= 0xdc00 && low < 0xe000) {
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
        i += 2;
      }
    }
    out.push_back(c);  // a lone surrogate becomes U+FFFD on encoding
  }
  return encode_utf8(out);
}

}  // namespace danqing
