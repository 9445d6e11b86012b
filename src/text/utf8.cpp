#include "text/utf8.h"

#include <utf8proc.h>

#include <cstdint>

namespace danqing::utf8 {
namespace {

// Start of the character that ends at `end`; s is valid UTF-8.
size_t previous(std::string_view s, size_t end) {
  size_t i = end - 1;
  while (i > 0 && (static_cast<unsigned char>(s[i]) & 0xC0) == 0x80) --i;
  return i;
}

}  // namespace

char32_t next(std::string_view s, size_t& i, bool* valid) {
  const auto byte = [&](size_t k) { return static_cast<unsigned char>(s[k]); };
  const unsigned char b = byte(i++);
  if (b < 0x80) return b;
  int more = 0;
  unsigned char low = 0x80, high = 0xBF;  // range of the second byte: excludes overlong forms and surrogates
  char32_t c = 0;
  if (b >= 0xC2 && b <= 0xDF) {
    more = 1, c = b & 0x1Fu;
  } else if (b >= 0xE0 && b <= 0xEF) {
    more = 2, c = b & 0x0Fu;
    if (b == 0xE0) low = 0xA0;
    if (b == 0xED) high = 0x9F;
  } else if (b >= 0xF0 && b <= 0xF4) {
    more = 3, c = b & 0x07u;
    if (b == 0xF0) low = 0x90;
    if (b == 0xF4) high = 0x8F;
  }
  bool ok = more > 0;
  for (; ok && more > 0; --more, low = 0x80, high = 0xBF) {
    ok = i < s.size() && byte(i) >= low && byte(i) <= high;
    if (ok) c = (c << 6) | (byte(i++) & 0x3Fu);
  }
  if (ok) return c;
  if (valid) *valid = false;
  return kReplacement;
}

void append(std::string& out, char32_t c) {
  const auto put = [&](char32_t v) { out.push_back(static_cast<char>(v)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | (c >> 6)), put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | (c >> 12)), put(0x80 | ((c >> 6) & 0x3F)), put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | (c >> 18)), put(0x80 | ((c >> 12) & 0x3F)), put(0x80 | ((c >> 6) & 0x3F)), put(0x80 | (c & 0x3F));
  }
}

bool is_valid(std::string_view s) {
  bool valid = true;
  for (size_t i = 0; i < s.size() && valid;) next(s, i, &valid);
  return valid;
}

std::string sanitize(std::string_view s) {
  std::string out;
  out.reserve(s.size());
  for (size_t i = 0; i < s.size();) append(out, next(s, i));
  return out;
}

bool is_space(char32_t c) {
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
         c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_word(char32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    default: break;
  }
  // Joiners, and the circled and squared letters that are Alphabetic though their category is So.
  return c == 0x200C || c == 0x200D || (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
         (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
}

size_t leading_space(std::string_view s) {
  size_t end = 0;
  for (size_t i = 0; i < s.size() && is_space(next(s, i));) end = i;
  return end;
}

size_t trailing_space(std::string_view s) {
  size_t begin = s.size();
  while (begin > 0) {
    size_t i = previous(s, begin);
    const size_t start = i;
    if (!is_space(next(s, i))) break;
    begin = start;
  }
  return s.size() - begin;
}

bool starts_with_word(std::string_view s) {
  size_t i = 0;
  return !s.empty() && is_word(next(s, i));
}

bool ends_with_word(std::string_view s) {
  if (s.empty()) return false;
  size_t i = previous(s, s.size());
  return is_word(next(s, i));
}

}  // namespace danqing::utf8
