// Shows a run's progress on stderr: a bar on a terminal, plain lines elsewhere, nothing when quiet.
#pragma once
#include <chrono>
#include <string>

#include "danqing/engine.h"

namespace danqing::app {

class ProgressView {
 public:
  enum class Mode { bar, lines, silent };
  /// Bar when stderr is a terminal, else lines.
  static Mode mode_for(bool quiet);
  explicit ProgressView(Mode mode) : mode_(mode) {}
  ~ProgressView() { clear(); }
  void show(const ProgressEvent& event);
  /// A message that stays: takes the bar off the line first.
  void say(const std::string& line);
  void clear();

 private:
  std::string text(const ProgressEvent& e) const;
  Mode mode_;
  bool drawn_ = false;
  Stage last_stage_ = Stage::decode;
  int last_image_ = -1, last_tenth_ = -1;
  std::chrono::steady_clock::time_point last_draw_{};
};

/// "[########------------]" of `width` cells.
std::string bar_text(double fraction, int width);

}  // namespace danqing::app
