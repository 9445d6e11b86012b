#include "base/text.h"

#include <fmt/format.h>

namespace danqing {
namespace {

// Length of the valid UTF-8 sequence at the front (RFC 3629: no overlong forms, no surrogates), 0 if there is none.
size_t sequence_length(std::string_view s) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(s[i]); };
  const unsigned char lead = at(0);
  const size_t n = lead < 0x80                   ? 1
                   : lead >= 0xc2 && lead < 0xe0 ? 2
                   : lead >= 0xe0 && lead < 0xf0 ? 3
                   : lead >= 0xf0 && lead < 0xf5 ? 4
                                                 : 0;
  if (n == 0 || s.size() < n) return 0;
  for (size_t i = 1; i < n; ++i)
    if ((at(i) & 0xc0) != 0x80) return 0;
  if (lead == 0xe0 && at(1) < 0xa0) return 0;
  if (lead == 0xed && at(1) >= 0xa0) return 0;
  if (lead == 0xf0 && at(1) < 0x90) return 0;
  if (lead == 0xf4 && at(1) >= 0x90) return 0;
  return n;
}

}  // namespace

size_t valid_utf8_prefix(std::string_view text) {
  size_t done = 0;
  while (done < text.size()) {
    const size_t n = sequence_length(text.substr(done));
    if (n == 0) break;
    done += n;
  }
  return done;
}

std::string one_line(std::string_view text, size_t max) {
  std::string out;
  while (!text.empty()) {
    if (out.size() >= max) return out + "...";
    const size_t n = sequence_length(text);
    const auto c = static_cast<unsigned char>(text[0]);
    if (n == 0 || c < 0x20 || c == 0x7f) {
      out += fmt::format("\\x{:02x}", c);
      text.remove_prefix(1);
    } else {
      out += text.substr(0, n);
      text.remove_prefix(n);
    }
  }
  return out;
}

}  // namespace danqing
