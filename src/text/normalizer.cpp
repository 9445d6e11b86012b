#include "text/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "base/text.h"
#include "base/try.h"
#include "text/utf8.h"

namespace danqing {
namespace {

// Combining marks newer than Unicode 9, whose tables the reference tokenizer normalises with: to it they are not marks.
// Derived by comparing its output with Unicode's rules for every mark.
struct Range {
  utf8proc_int32_t first, last;
};
constexpr Range kUnknownMarks[] = {{0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},
                                   {0xC3C, 0xC3C},     {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0x1715, 0x1715},
                                   {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},   {0xA82C, 0xA82C},   {0x10D24, 0x10D27},
                                   {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF}, {0x10F46, 0x10F50}, {0x10F82, 0x10F85},
                                   {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E}, {0x11839, 0x1183A},
                                   {0x1193D, 0x1193E}, {0x11943, 0x11943}, {0x119E0, 0x119E0}, {0x11A34, 0x11A34},
                                   {0x11A47, 0x11A47}, {0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45},
                                   {0x11D97, 0x11D97}, {0x11F41, 0x11F42}, {0x16FF0, 0x16FF1}, {0x1E08F, 0x1E08F},
                                   {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF}};

// The position before the first trailing consonant, no consonant itself: utf8proc 2.8 would compose and so lose it.
constexpr utf8proc_int32_t kHangulTBase = 0x11A7;

bool is_unknown_mark(utf8proc_int32_t c) {
  const auto* r = std::lower_bound(std::begin(kUnknownMarks), std::end(kUnknownMarks), c,
                                   [](const Range& range, utf8proc_int32_t x) { return range.last < x; });
  return r != std::end(kUnknownMarks) && c >= r->first;
}

int combining_class(utf8proc_int32_t c) {
  const int value = utf8proc_get_property(c)->combining_class;
  return value != 0 && is_unknown_mark(c) ? 0 : value;
}

}  // namespace

Result<std::string> to_nfc(std::string_view text) {
  // Below U+0300 everything is composed already and nothing combines.
  const bool low = std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0xCC; });
  if (low) return std::string(text);
  std::vector<utf8proc_int32_t> chars;
  chars.reserve(text.size());
  const auto form = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  for (size_t i = 0; i < text.size();) {
    const auto c = static_cast<utf8proc_int32_t>(utf8::next(text, i));
    utf8proc_int32_t parts[32];
    int last_class = 0;
    const utf8proc_ssize_t n = utf8proc_decompose_char(c, parts, 32, form, &last_class);
    if (n < 0 || n > 32) return fail(ErrorCode::failed, "[tokenizer] NFC: {}", utf8proc_errmsg(n));
    chars.insert(chars.end(), parts, parts + n);
  }
  // utf8proc orders marks by exchanging neighbours, which takes quadratic time on long runs: sort each run instead.
  for (size_t i = 0; i < chars.size();) {
    size_t end = i;
    while (end < chars.size() && combining_class(chars[end]) != 0) ++end;
    const auto at = [&](size_t k) { return chars.begin() + static_cast<std::ptrdiff_t>(k); };
    std::stable_sort(at(i), at(end), [](auto a, auto b) { return combining_class(a) < combining_class(b); });
    i = std::max(end, i + 1);
  }
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < chars.size();) {  // nothing composes across an unknown mark
    size_t end = i + 1;
    while (end < chars.size() && !is_unknown_mark(chars[end]) && chars[end] != kHangulTBase) ++end;
    const auto n = utf8proc_normalize_utf32(&chars[i], static_cast<utf8proc_ssize_t>(end - i), form);
    if (n < 0) return fail(ErrorCode::failed, "[tokenizer] NFC: {}", utf8proc_errmsg(n));
    for (size_t k = i; k < i + static_cast<size_t>(n); ++k) utf8::append(out, static_cast<char32_t>(chars[k]));
    i = end;
  }
  return out;
}

Result<Normalizer> Normalizer::from_json(const Json* j, const std::string& where) {
  Normalizer n;
  if (!j || j->is_null()) return n;
  DQ_TRY(const JsonObject o, JsonObject::of(*j, where + ":normalizer"));
  DQ_TRY(const std::string type, o.string("type"));
  if (type == "NFC") {
    n.nfc_ = true;
    return n;
  }
  if (type == "Sequence") {
    const Json* parts = o.get("normalizers");
    if (!parts || !parts->is_array()) return bad_input("[tokenizer] {}: expected a list 'normalizers'", o.where());
    for (const Json& part : *parts) {
      DQ_TRY(const Normalizer inner, from_json(&part, where));
      n.nfc_ = n.nfc_ || inner.nfc_;
    }
    return n;
  }
  return bad_input("[tokenizer] {}: expected NFC or Sequence, got {}, which this build cannot read", o.where(),
                   one_line(type));
}

Result<std::string> Normalizer::apply(std::string_view text) const {
  if (nfc_) return to_nfc(text);
  return std::string(text);
}

}  // namespace danqing
