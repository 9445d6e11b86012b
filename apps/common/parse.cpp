#include "common/parse.h"

#include <charconv>
#include <cstdio>
#include <sstream>

#include "base/file.h"
#include "base/try.h"

namespace danqing::app {
namespace {

constexpr size_t kMaxPromptFile = size_t{64} << 20;

Result<std::string> read_standard_input() {
  std::string text;
  char block[4096];
  while (const size_t n = std::fread(block, 1, sizeof block, stdin)) {
    if (text.size() + n > kMaxPromptFile)
      return bad_input("[prompt] expected at most {} bytes on standard input, got more", kMaxPromptFile);
    text.append(block, n);
  }
  return text;
}

}  // namespace

Result<uint64_t> parse_seed(std::string_view text, std::string_view option) {
  const bool negative = !text.empty() && text[0] == '-';
  const std::string_view digits = text.substr(negative ? 1 : 0);
  uint64_t v = 0;
  const auto r = std::from_chars(digits.data(), digits.data() + digits.size(), v);
  if (r.ec != std::errc() || r.ptr != digits.data() + digits.size())
    return usage_error("[{}] expected an integer from -2^63 to 2^64-1, got '{}'", option, text);
  if (negative && v > uint64_t{1} << 63)
    return usage_error("[{}] expected an integer from -2^63 to 2^64-1, got '{}'", option, text);
  return negative ? uint64_t{0} - v : v;
}

Result<std::vector<uint64_t>> parse_seeds(std::string_view text) {
  std::vector<uint64_t> seeds;
  if (text.empty() || text == "random") return seeds;
  for (size_t start = 0; start <= text.size();) {
    const size_t comma = std::min(text.find(',', start), text.size());
    DQ_TRY(const uint64_t seed, parse_seed(text.substr(start, comma - start)));
    seeds.push_back(seed);
    start = comma + 1;
  }
  return seeds;
}

Result<int> parse_count_or_auto(std::string_view text, std::string_view option, std::string_view what) {
  if (text == "auto") return 0;
  int n = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || rest != text.data() + text.size() || n < 1)
    return usage_error("[{}] expected auto or a number of {} from 1 on, got '{}'", option, what, text);
  return n;
}

Result<EnhancerMode> parse_enhancer_mode(std::string_view text) {
  if (text == "auto") return EnhancerMode::automatic;
  if (text == "on") return EnhancerMode::on;
  if (text == "off") return EnhancerMode::off;
  return usage_error("[--prompt-enhancer] expected on, off or auto, got '{}'", text);
}

Result<std::vector<std::string>> read_prompts(const std::string& path) {
  DQ_TRY(std::string text, path == "-" ? read_standard_input() : read_text(path, kMaxPromptFile, true));
  if (text.compare(0, 3, "\xEF\xBB\xBF") == 0) text.erase(0, 3);
  std::vector<std::string> prompts;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.find_first_not_of(" \t") != std::string::npos) prompts.push_back(line);
  }
  if (prompts.empty())
    return usage_error("[prompt] expected a prompt a line, got none in {}", path == "-" ? "standard input" : path);
  return prompts;
}

}  // namespace danqing::app
