// The terminal as a panel: another screen, no cursor, single keys; everything as before when it ends.
#pragma once
#include <termios.h>

#include <string>
#include <utility>

namespace danqing::app {

class Terminal {
 public:
  Terminal();
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;
  /// Replaces what is shown.
  void draw(const std::string& text);
  /// Waits for a key at most so long; 0 when none came.
  char key(double seconds);
  static std::pair<int, int> size();  ///< columns, lines
  static bool on_terminal();          ///< standard output is one, and it can move the cursor
  static bool unicode();              ///< by LC_ALL, LC_CTYPE, LANG

 private:
  termios before_{};
  bool keys_ = false;
};

}  // namespace danqing::app
