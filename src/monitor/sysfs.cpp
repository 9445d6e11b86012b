#include "monitor/sysfs.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace danqing::monitor {
namespace fs = std::filesystem;

std::optional<std::string> read_bytes(const fs::path& path, size_t limit) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return {};
  struct stat info {};
  std::optional<std::string> out;
  if (::fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) {
    out.emplace();
    char part[4096];
    while (out->size() < limit) {
      const ssize_t n = ::read(fd, part, std::min(sizeof part, limit - out->size()));
      if (n < 0) out.reset();  // a sensor that is asleep answers with an error
      if (n <= 0) break;
      out->append(part, static_cast<size_t>(n));
    }
  }
  ::close(fd);
  return out;
}

std::optional<std::string> read_line(const fs::path& path) {
  const auto text = read_bytes(path, 4096);
  if (!text) return {};
  std::string line = text->substr(0, text->find('\n'));
  const size_t begin = line.find_first_not_of(" \t\r"), end = line.find_last_not_of(" \t\r");
  if (begin == std::string::npos) return {};
  line = line.substr(begin, end - begin + 1);
  if (std::any_of(line.begin(), line.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }))
    return {};
  return line;
}

std::optional<double> leading_number(std::string_view text) {
  double v = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v, std::chars_format::fixed);
  if (error != std::errc() || !std::isfinite(v)) return {};
  return v;
}

std::optional<double> read_number(const fs::path& path, double min, double max) {
  const auto line = read_line(path);
  if (!line || line->find_first_not_of("0123456789.-") != std::string::npos) return {};
  double v = 0;
  const auto [end, error] = std::from_chars(line->data(), line->data() + line->size(), v, std::chars_format::fixed);
  if (error != std::errc() || end != line->data() + line->size() || !(v >= min && v <= max)) return {};
  return v;
}

std::vector<std::string> numbered(const fs::path& directory, std::string_view prefix, bool digits_only) {
  std::vector<std::pair<unsigned long, std::string>> found;
  std::error_code ec;
  for (fs::directory_iterator it(directory, ec), end; !ec && it != end; it.increment(ec)) {
    const std::string name = it->path().filename().string();
    if (name.compare(0, prefix.size(), prefix) != 0 || name.size() == prefix.size()) continue;
    unsigned long n = 0;
    const char* last = name.data() + name.size();
    const auto [rest, error] = std::from_chars(name.data() + prefix.size(), last, n);
    if (error != std::errc() || (digits_only && rest != last)) continue;
    found.emplace_back(n, name);
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> names;
  for (auto& [n, name] : found) names.push_back(std::move(name));
  return names;
}

}  // namespace danqing::monitor
