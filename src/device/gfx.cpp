#include "device/gfx.h"

#include <fmt/format.h>

#include <cctype>
#include <charconv>
#include <cstdio>
#include <set>

#include "base/file.h"

namespace danqing {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostProperties = size_t{64} << 10;

/// The number behind "key " at the beginning of a line; 0 when it is not there.
uint64_t field(const std::string& text, const std::string& key) {
  const std::string mark = "\n" + key + " ";
  const std::string lines = "\n" + text;
  const size_t at = lines.find(mark);
  uint64_t v = 0;
  if (at != std::string::npos) std::from_chars(lines.data() + at + mark.size(), lines.data() + lines.size(), v);
  return v;
}

}  // namespace

std::string gfx_name(uint64_t v) {
  const uint64_t major = v / 10000, minor = v / 100 % 100, step = v % 100;
  if (major < 6 || major > 99 || minor > 15 || step > 15) return {};
  return fmt::format("gfx{}{:x}{:x}", major, minor, step);
}

std::map<std::string, std::string> gfx_targets(const fs::path& root) {
  std::map<std::string, std::string> found;
  std::error_code ec;
  for (fs::directory_iterator it(root / "sys/class/kfd/kfd/topology/nodes", ec), end; !ec && it != end;
       it.increment(ec)) {
    const auto properties = read_text(it->path() / "properties", kMostProperties);
    if (!properties) continue;
    const std::string& text = *properties;
    const std::string gfx = gfx_name(field(text, "gfx_target_version"));
    if (gfx.empty()) continue;
    const uint64_t location = field(text, "location_id");  // bus, device and function
    found[fmt::format("{:04x}:{:02x}:{:02x}.{}", field(text, "domain"), location >> 8 & 0xff, location >> 3 & 0x1f,
                      location & 7)] = gfx;
  }
  return found;
}

std::vector<std::string> gfx_targets_in(std::string_view program) {
  // Code objects in a HIP fat binary are named "hipv4-amdgcn-amd-amdhsa--gfx1100" (":xnack-" may follow).
  constexpr std::string_view kMark = "amdgcn-amd-amdhsa--gfx";
  std::set<std::string> found;
  for (size_t at = program.find(kMark); at != std::string_view::npos; at = program.find(kMark, at + 1)) {
    const size_t begin = at + kMark.size();
    size_t end = begin;
    while (end < program.size() && end - begin < 6 && std::isxdigit(static_cast<unsigned char>(program[end]))) ++end;
    if (end - begin >= 3) found.insert("gfx" + std::string(program.substr(begin, end - begin)));
  }
  return {found.begin(), found.end()};
}

std::string gfx_override(const std::string& text) {
  unsigned major = 0, minor = 0, step = 0;
  if (std::sscanf(text.c_str(), "%u.%u.%u", &major, &minor, &step) != 3 || major > 99 || minor > 15 || step > 15)
    return "";
  return fmt::format("gfx{}{:x}{:x}", major, minor, step);
}

}  // namespace danqing
