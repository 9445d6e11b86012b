#include "common/output_name.h"

#include <cctype>
#include <charconv>

#include "base/try.h"

namespace danqing::app {

std::string slug(std::string_view prompt, size_t max_bytes) {
  std::string out;
  for (size_t i = 0; i < prompt.size();) {
    const auto c = static_cast<unsigned char>(prompt[i]);
    const size_t n = c < 0x80 ? 1 : c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : 2;
    const std::string_view ch = prompt.substr(i, n);
    i += n;
    // U+3000..303F and U+FF00..FF0F are the full-width spaces and punctuation of Chinese text.
    const bool wide_mark = ch.size() == 3 && ((c == 0xE3 && static_cast<unsigned char>(ch[1]) == 0x80) ||
                                              (c == 0xEF && static_cast<unsigned char>(ch[1]) == 0xBC));
    const bool keep = (c < 0x80 ? std::isalnum(c) != 0 : ch.size() == n && c >= 0xC2) && !wide_mark;
    if (out.size() + n > max_bytes) break;
    if (keep) out += ch;
    else if (!out.empty() && out.back() != '-') out += '-';
  }
  while (!out.empty() && out.back() == '-') out.pop_back();
  return out.empty() ? "picture" : out;
}

Result<std::string> expand_output_name(std::string_view pattern, const OutputFields& f) {
  std::string out;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '}') return usage_error("[output] unbalanced '}}' in '{}'; fields are {{seed}}, {{index}}, {{prompt}}", pattern);
    if (c != '{') {
      out += c;
      continue;
    }
    const size_t end = pattern.find('}', i);
    if (end == std::string_view::npos) return usage_error("[output] unbalanced '{{' in '{}'", pattern);
    const std::string_view field = pattern.substr(i + 1, end - i - 1);
    const std::string_view key = field.substr(0, field.find(':'));
    int digits = 0;
    if (key.size() < field.size()) {
      const std::string_view spec = field.substr(key.size() + 1);
      const auto r = std::from_chars(spec.data(), spec.data() + spec.size(), digits);
      if (r.ec != std::errc() || r.ptr != spec.data() + spec.size() || digits < 0 || digits > 20 || key == "prompt")
        return usage_error("[output] expected digits such as {{index:04}}, got '{{{}}}'", field);
    }
    if (key == "seed") out += fmt::format("{:0{}}", f.seed, std::max(1, digits));
    else if (key == "index") out += fmt::format("{:0{}}", f.index, std::max(1, digits));
    else if (key == "prompt") out += slug(f.prompt);
    else return usage_error("[output] unknown field '{{{}}}'; fields are {{seed}}, {{index}}, {{prompt}}", field);
    i = end;
  }
  return out;
}

std::string pattern_for(std::string_view pattern, int images) {
  const bool tells = pattern.find("{index") != std::string_view::npos || pattern.find("{seed") != std::string_view::npos;
  if (images <= 1 || tells) return std::string(pattern);
  const size_t slash = pattern.find_last_of('/');
  const size_t dot = pattern.find_last_of('.');
  const size_t at = dot == std::string_view::npos || (slash != std::string_view::npos && dot < slash) ? pattern.size() : dot;
  return std::string(pattern.substr(0, at)) + "-{index}" + std::string(pattern.substr(at));
}

std::filesystem::path free_name(const std::filesystem::path& path) {
  std::error_code ec;
  std::filesystem::path p = path;
  for (int i = 2; std::filesystem::exists(std::filesystem::symlink_status(p, ec)); ++i) {
    p = path.parent_path() / path.stem();
    p += fmt::format("-{}", i);
    p += path.extension();
  }
  return p;
}

}  // namespace danqing::app
