#include "text/byte_level.h"

#include "text/utf8.h"

namespace danqing::byte_level {
namespace {

struct Tables {
  std::array<char32_t, 256> to_char{};
  std::array<std::string, 256> to_utf8;
  std::array<int, 324> to_byte{};  // characters U+0000 to U+0143

  Tables() {
    to_byte.fill(-1);
    char32_t extra = 0x100;
    for (size_t b = 0; b < 256; ++b) {
      const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      to_char[b] = printable ? static_cast<char32_t>(b) : extra++;
      utf8::append(to_utf8[b], to_char[b]);
      to_byte[to_char[b]] = static_cast<int>(b);
    }
  }
};

const Tables& tables() {
  static const Tables t;
  return t;
}

}  // namespace

const std::array<char32_t, 256>& alphabet() { return tables().to_char; }

void append_encoded(std::string& out, std::string_view bytes) {
  const Tables& t = tables();
  for (const char c : bytes) out += t.to_utf8[static_cast<unsigned char>(c)];
}

std::optional<std::string> decoded(std::string_view token) {
  const Tables& t = tables();
  std::string out;
  for (size_t i = 0; i < token.size();) {
    const char32_t c = utf8::next(token, i);
    if (c >= t.to_byte.size() || t.to_byte[c] < 0) return std::nullopt;
    out += static_cast<char>(t.to_byte[c]);
  }
  return out;
}

}  // namespace danqing::byte_level
