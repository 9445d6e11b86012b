#include "panel/terminal.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace danqing::app {

Terminal::Terminal() {
  if (isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &before_) == 0) {
    termios raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    keys_ = tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
  }
  std::fputs("\x1b[?1049h\x1b[?25l", stdout);
}

Terminal::~Terminal() {
  std::fputs("\x1b[?25h\x1b[?1049l", stdout);
  std::fflush(stdout);
  if (keys_) tcsetattr(STDIN_FILENO, TCSANOW, &before_);
}

void Terminal::draw(const std::string& text) {
  // Line by line over what is there: a screen that is cleared first flickers.
  std::string out = "\x1b[H";
  for (const char c : text) {
    if (c == '\n') out += "\x1b[K";
    out += c;
  }
  out += "\x1b[J";
  std::fputs(out.c_str(), stdout);
  std::fflush(stdout);
}

char Terminal::key(double seconds) {
  const int ms = static_cast<int>(seconds * 1000);
  if (!keys_) {
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
    return 0;
  }
  pollfd fd{STDIN_FILENO, POLLIN, 0};
  char c = 0;
  if (poll(&fd, 1, ms) <= 0) return 0;
  if (read(STDIN_FILENO, &c, 1) != 1) keys_ = false;  // the terminal went away; its settings went with it
  return c;
}

std::pair<int, int> Terminal::size() {
  winsize w{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) != 0 || w.ws_col == 0 || w.ws_row == 0) return {80, 24};
  return {w.ws_col, w.ws_row};
}

bool Terminal::on_terminal() {
  const char* term = std::getenv("TERM");
  return isatty(STDOUT_FILENO) && term && *term && std::strcmp(term, "dumb") != 0;
}

bool Terminal::unicode() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"})
    if (const char* v = std::getenv(name); v && *v)
      return std::strstr(v, "UTF-8") || std::strstr(v, "utf8") || std::strstr(v, "UTF8") || std::strstr(v, "utf-8");
  return false;
}

}  // namespace danqing::app
