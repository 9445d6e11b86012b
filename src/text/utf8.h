// UTF-8 as text from outside has it: decoding that survives any bytes, and the few character classes that added tokens
// need.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace danqing::utf8 {

inline constexpr char32_t kReplacement = 0xFFFD;

/// The code point at s[i] (i < s.size()); moves i past it. Ill-formed bytes give U+FFFD, one per maximal subpart
/// (Unicode 15, section 3.9), and set *valid to false.
char32_t next(std::string_view s, size_t& i, bool* valid = nullptr);
void append(std::string& out, char32_t c);
bool is_valid(std::string_view s);
/// Ill-formed bytes replaced by U+FFFD, as Rust's from_utf8_lossy and Python's errors="replace" do.
std::string sanitize(std::string_view s);

bool is_space(char32_t c);  ///< White_Space
bool is_word(char32_t c);   ///< Alphabetic, marks, decimal digits, connectors, joiners: `\w` of Rust's regex crate
/// How many bytes of white space s starts / ends with, and whether its first / last character is a word character.
size_t leading_space(std::string_view s);
size_t trailing_space(std::string_view s);
bool starts_with_word(std::string_view s);
bool ends_with_word(std::string_view s);

}  // namespace danqing::utf8
