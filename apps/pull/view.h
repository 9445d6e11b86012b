// Shows a transfer: a bar on a terminal, a line for every tenth elsewhere.
#pragma once
#include <chrono>
#include <deque>
#include <string>

#include "common/progress.h"

namespace danqing::app {

class TransferView {
 public:
  TransferView(ProgressView::Mode mode, std::string verb) : mode_(mode), verb_(std::move(verb)) {}
  ~TransferView() { clear(); }
  /// Bytes done and in all, what is at work, bytes over the network so far.
  void show(uint64_t done, uint64_t total, const std::string& file, uint64_t moved);
  /// A message that stays.
  void say(const std::string& line);
  void clear();

 private:
  double speed(uint64_t moved);
  ProgressView::Mode mode_;
  std::string verb_, last_file_;
  std::deque<std::pair<std::chrono::steady_clock::time_point, uint64_t>> history_;
  std::chrono::steady_clock::time_point last_draw_{};
  int last_tenth_ = -1;
  bool drawn_ = false;
};

}  // namespace danqing::app
