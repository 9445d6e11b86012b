// Readings as text: for a terminal that is redrawn in place, and as lines.
#pragma once
#include <deque>
#include <string>
#include <vector>

#include "monitor/sampler.h"

namespace danqing::app {

struct PanelStyle {
  int width = 80, height = 24;
  bool colour = false;
  bool unicode = true;  ///< blocks and degree signs; else ASCII
};

/// Everything about one moment, in several lines.
std::string snapshot_text(const monitor::Snapshot& s, const PanelStyle& style);
/// One line a card and one for the host, for a log.
std::string snapshot_lines(const monitor::Snapshot& s, bool unicode);
/// The panel: every card's numbers with graphs of load, memory, temperature and power over `history` (oldest first, the
/// last one is now). At most `height` lines of at most `width` columns.
std::string panel_text(const std::deque<monitor::Snapshot>& history, const PanelStyle& style);
/// The last `width` values as columns, from 0 to `top`; a value that is missing is a blank.
std::string graph(const std::vector<std::optional<double>>& values, double top, int width, bool unicode);

}  // namespace danqing::app
