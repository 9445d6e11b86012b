// The two sources of card readings. Not for other layers: use read_cards().
#pragma once
#include "monitor/reading.h"

namespace danqing::monitor {

std::vector<CardReading> read_amd_cards(const Options& options);
std::vector<CardReading> read_nvidia_cards(const Options& options);

}  // namespace danqing::monitor
