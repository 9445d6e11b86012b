#include "common/output_name.h"

#include <unistd.h>
#include <utf8proc.h>

#include <algorithm>
#include <charconv>

#include "base/file.h"
#include "base/try.h"
#include "danqing/image.h"

namespace danqing::app {
namespace {

bool is_word(utf8proc_int32_t codepoint) {
  switch (utf8proc_category(codepoint)) {
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
    case UTF8PROC_CATEGORY_NO: return true;
    default: return false;
  }
}

}  // namespace

std::string slug(std::string_view prompt, size_t max_bytes) {
  std::string out;
  while (!prompt.empty()) {
    utf8proc_int32_t codepoint = -1;
    const auto read = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(prompt.data()),
                                       static_cast<utf8proc_ssize_t>(prompt.size()), &codepoint);
    const size_t n = read > 0 ? static_cast<size_t>(read) : 1;
    if (out.size() + n > max_bytes) break;
    if (read > 0 && is_word(codepoint))
      out += prompt.substr(0, n);
    else if (!out.empty() && out.back() != '-')
      out += '-';
    prompt.remove_prefix(n);
  }
  while (!out.empty() && out.back() == '-') out.pop_back();
  return out.empty() ? "picture" : out;
}

Result<std::string> expand_output_name(std::string_view pattern, const OutputFields& f) {
  std::string out;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '}')
      return usage_error("[output] unbalanced '}}' in '{}'; fields are {{seed}}, {{index}}, {{prompt}}", pattern);
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
    if (key == "seed")
      out += fmt::format("{:0{}}", f.seed, std::max(1, digits));
    else if (key == "index")
      out += fmt::format("{:0{}}", f.index, std::max(1, digits));
    else if (key == "prompt")
      out += slug(f.prompt);
    else
      return usage_error("[output] unknown field '{{{}}}'; fields are {{seed}}, {{index}}, {{prompt}}", field);
    i = end;
  }
  return out;
}

Result<void> check_output_pattern(const std::string& pattern) {
  DQ_TRY(const std::string example, expand_output_name(pattern, {0, 0, "a"}));
  DQ_TRY([[maybe_unused]] const ImageFormat format, image_format_of(example));
  constexpr size_t kLongestName = 240;  // file systems hold 255 bytes; a number may be added
  if (const std::string last = std::filesystem::path(example).filename().string(); last.size() > kLongestName)
    return usage_error("[output] expected a file name of at most {} bytes, got {}", kLongestName, last.size());
  std::error_code ec;
  if (std::filesystem::is_directory(example, ec))
    return usage_error("[output] expected a file name, got the directory {}", example);
  return {};
}

Result<void> make_output_directory(const std::string& pattern) {
  std::filesystem::path dir = std::filesystem::path(pattern.substr(0, pattern.find('{')) + "x").parent_path();
  if (dir.empty()) dir = ".";
  std::error_code ec;
  std::filesystem::create_directories(dir, ec);
  if (ec) return fail(ErrorCode::failed, "[output] cannot make the directory {}: {}", dir.string(), ec.message());
  // Only a real file tells: permissions say little to root, on read-only mounts and on network shares.
  const std::filesystem::path probe = dir / fmt::format(".danqing-probe{}", ::getpid());
  if (auto written = write_file(probe, ""); !written)
    return fail(ErrorCode::failed, "[output] cannot write into the directory {}", dir.string());
  std::filesystem::remove(probe, ec);
  return {};
}

std::string pattern_for(std::string_view pattern, size_t images) {
  const bool tells =
      pattern.find("{index") != std::string_view::npos || pattern.find("{seed") != std::string_view::npos;
  if (images <= 1 || tells) return std::string(pattern);
  const size_t slash = pattern.find_last_of('/');
  const size_t dot = pattern.find_last_of('.');
  const size_t at =
      dot == std::string_view::npos || (slash != std::string_view::npos && dot < slash) ? pattern.size() : dot;
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
