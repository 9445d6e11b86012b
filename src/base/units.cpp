#include "base/units.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

#include "base/try.h"

namespace danqing {

std::string format_bytes(uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double v = static_cast<double>(bytes);
  int u = 0;
  while (v >= 1024 && u < 4) v /= 1024, ++u;
  return u == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.2f} {}", v, kUnits[u]);
}

Result<uint64_t> parse_bytes(std::string_view text) {
  double v = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), v);
  std::string unit(end, text.data() + text.size());
  unit.erase(std::remove(unit.begin(), unit.end(), ' '), unit.end());
  for (char& c : unit) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  if (unit.size() > 1 && unit.back() == 'B') unit.pop_back();
  if (unit.size() > 1 && unit.back() == 'I') unit.pop_back();
  constexpr std::string_view kPowers = "BKMGT";
  const size_t power = unit.empty() ? 0 : kPowers.find(unit);
  const double bytes = power == std::string_view::npos ? -1 : v * std::pow(1024.0, static_cast<double>(power));
  if (ec != std::errc() || unit.size() > 1 || !(bytes >= 0) || bytes > 9e18)
    return usage_error("[bytes] expected a size such as 32GiB or 512MiB, got '{}'", text);
  return static_cast<uint64_t>(bytes);
}

Result<std::pair<int, int>> parse_size(std::string_view text) {
  int w = 0, h = 0;
  const char* end = text.data() + text.size();
  const auto a = std::from_chars(text.data(), end, w);
  if (a.ec == std::errc() && a.ptr < end && (*a.ptr == 'x' || *a.ptr == 'X' || *a.ptr == '*')) {
    const auto b = std::from_chars(a.ptr + 1, end, h);
    if (b.ec == std::errc() && b.ptr == end && w >= 1 && h >= 1) return std::pair{w, h};
  }
  return usage_error("[size] expected WIDTHxHEIGHT such as 1024x1024, got '{}'", text);
}

std::string format_seconds(double s) {
  if (!(s >= 0) || s > 1e9) return "?";
  if (s < 60) return fmt::format("{:.2f} s", s);
  const long t = std::lround(s);
  return t < 3600 ? fmt::format("{}:{:02}", t / 60, t % 60)
                  : fmt::format("{}:{:02}:{:02}", t / 3600, t / 60 % 60, t % 60);
}

}  // namespace danqing
