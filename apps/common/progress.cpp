#include "common/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "base/units.h"

namespace danqing::app {
namespace {

int terminal_columns() {
  winsize w{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0 ? w.ws_col : 80;
}

std::string stage_text(Stage stage) {
  switch (stage) {
    case Stage::load: return "load weights";
    case Stage::enhance: return "enhance prompt";
    case Stage::encode_text: return "encode prompt";
    case Stage::encode_image: return "encode given picture";
    case Stage::denoise: return "denoise";
    case Stage::decode: return "decode picture";
  }
  return "";
}

std::string speed_text(double seconds_per_step) {
  if (seconds_per_step <= 0) return "";
  return seconds_per_step < 1 ? fmt::format("{:.2f} it/s", 1 / seconds_per_step)
                              : fmt::format("{:.2f} s/it", seconds_per_step);
}

}  // namespace

std::string bar_text(double fraction, int width) {
  const auto full = static_cast<int>(std::lround(std::clamp(fraction, 0.0, 1.0) * width));
  return "[" + std::string(static_cast<size_t>(full), '#') + std::string(static_cast<size_t>(width - full), '-') + "]";
}

ProgressView::Mode ProgressView::mode_for(bool quiet) {
  if (quiet) return Mode::silent;
  const char* term = std::getenv("TERM");
  const bool dumb = !term || std::string_view(term) == "dumb";
  return ::isatty(STDERR_FILENO) && !dumb ? Mode::bar : Mode::lines;
}

std::string ProgressView::text(const ProgressEvent& e) const {
  const std::string of = e.images > 1 ? fmt::format("picture {}/{} ", e.image + 1, e.images) : "";
  if (e.stage == Stage::load) return fmt::format("{} {}%", stage_text(e.stage), e.step / 10);
  if (e.stage == Stage::enhance) return fmt::format("{}{}: {} tokens", of, stage_text(e.stage), e.step);
  if (e.stage != Stage::denoise) return of + stage_text(e.stage);
  std::string s = fmt::format("{}{} step {}/{}", of, stage_text(e.stage), e.step, e.steps);
  if (e.seconds_per_step > 0)
    s += fmt::format(", {}, ETA {}", speed_text(e.seconds_per_step),
                     format_seconds(e.seconds_per_step * (e.steps - e.step)));
  return s;
}

void ProgressView::show(const ProgressEvent& e) {
  if (mode_ == Mode::silent) return;
  const bool new_stage = e.stage != last_stage_ || e.image != last_image_;
  const double fraction = e.steps > 0 ? static_cast<double>(e.step) / e.steps : 0;
  if (mode_ == Mode::lines) {
    // One line a stage, and one for every tenth of the steps, so that logs stay readable.
    const int tenth = static_cast<int>(fraction * 10);
    if (e.stage == Stage::load && e.step < e.steps) return;
    if (!new_stage && (e.stage != Stage::denoise || tenth == last_tenth_)) return;
    last_tenth_ = tenth;
    std::fprintf(stderr, "%s\n", text(e).c_str());
  } else {
    const auto now = std::chrono::steady_clock::now();
    if (!new_stage && e.step < e.steps && now - last_draw_ < std::chrono::milliseconds(50)) return;
    last_draw_ = now;
    std::string line = text(e);
    const auto columns = static_cast<size_t>(std::max(20, terminal_columns() - 1));
    if ((e.stage == Stage::denoise || e.stage == Stage::load) && line.size() + 27 <= columns)  // the numbers come first
      line = bar_text(fraction, 24) + " " + line;
    if (line.size() > columns) line.resize(columns);
    std::fprintf(stderr, "\r\033[K%s", line.c_str());
    std::fflush(stderr);
    drawn_ = true;
  }
  last_stage_ = e.stage;
  last_image_ = e.image;
}

void ProgressView::say(const std::string& line) {
  if (mode_ == Mode::silent) return;
  clear();
  std::fprintf(stderr, "%s\n", line.c_str());
}

void ProgressView::clear() {
  if (drawn_) std::fprintf(stderr, "\r\033[K");
  std::fflush(stderr);
  drawn_ = false;
}

}  // namespace danqing::app
