// The two sources of card readings. Not for other layers: use read_cards().
#pragma once
#include "monitor/reading.h"

namespace danqing::monitor {

std::vector<CardReading> read_amd_cards(const Options& options);
std::vector<CardReading> read_nvidia_cards(const Options& options);
/// "110000" of KFD's gfx_target_version as "gfx1100"; empty for 0 or nonsense.
std::string gfx_name(uint64_t target_version);

}  // namespace danqing::monitor
