#include "pull/view.h"

#include <fmt/format.h>

#include <cstdio>

#include "base/text.h"
#include "base/units.h"
#include "panel/terminal.h"

namespace danqing::app {

/// Of the last ten seconds.
double TransferView::speed(uint64_t moved) {
  const auto now = std::chrono::steady_clock::now();
  history_.emplace_back(now, moved);
  while (history_.size() > 2 && now - history_.front().first > std::chrono::seconds(10)) history_.pop_front();
  const double seconds = std::chrono::duration<double>(now - history_.front().first).count();
  return seconds > 0.2 ? static_cast<double>(moved - history_.front().second) / seconds : 0;
}

void TransferView::show(uint64_t done, uint64_t total, const std::string& file, uint64_t moved) {
  if (mode_ == ProgressView::Mode::silent) return;
  const auto now = std::chrono::steady_clock::now();
  const double share = total ? std::min(1.0, static_cast<double>(done) / static_cast<double>(total)) : 0;
  if (mode_ == ProgressView::Mode::lines) {
    const int tenth = static_cast<int>(share * 10);
    if (tenth == last_tenth_ || total == 0) return;
    last_tenth_ = tenth;
    std::fprintf(stderr, "%s %d%% of %s, %s\n", verb_.c_str(), tenth * 10, format_bytes(total).c_str(),
                 one_line(file, 100).c_str());
    return;
  }
  if (now - last_draw_ < std::chrono::milliseconds(100) && file == last_file_) return;
  last_draw_ = now;
  last_file_ = file;
  const double rate = speed(moved);
  std::string line = fmt::format("{} {:3.0f}% {} of {}", bar_text(share, 20), share * 100, format_bytes(done),
                                 total ? format_bytes(total) : std::string("?"));
  if (rate > 0) {
    line += fmt::format(", {}/s", format_bytes(static_cast<uint64_t>(rate)));
    if (total > done) line += fmt::format(", ETA {}", format_seconds(static_cast<double>(total - done) / rate));
  }
  line += " " + one_line(file, 60);
  const auto columns = static_cast<size_t>(std::max(20, Terminal::size().first - 1));
  if (line.size() > columns) line.resize(valid_utf8_prefix(std::string_view(line).substr(0, columns)));
  std::fprintf(stderr, "\r\033[K%s", line.c_str());
  std::fflush(stderr);
  drawn_ = true;
}

void TransferView::say(const std::string& line) {
  if (mode_ == ProgressView::Mode::silent) return;
  clear();
  std::fprintf(stderr, "%s\n", one_line(line, 1000).c_str());
}

void TransferView::clear() {
  if (drawn_) std::fprintf(stderr, "\r\033[K");
  std::fflush(stderr);
  drawn_ = false;
}

}  // namespace danqing::app
