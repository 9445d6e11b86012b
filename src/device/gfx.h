// AMD's names of what a card's kernels must be compiled for ("gfx1201"), and which a program brings along.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace danqing {

/// "110000" of KFD's gfx_target_version as "gfx1100"; empty for 0 or nonsense.
std::string gfx_name(uint64_t target_version);
/// KFD's node of each card, by PCI address ("0000:03:00.0"): the gfx target. `root` stands for "/".
std::map<std::string, std::string> gfx_targets(const std::filesystem::path& root = "/");
/// The targets that a HIP program or library holds kernels for, from the names of its code objects; sorted, each once.
/// Empty where they are compressed and do not say.
std::vector<std::string> gfx_targets_in(std::string_view program);
/// HSA_OVERRIDE_GFX_VERSION's "11.0.0" as "gfx1100"; empty for what is no version.
std::string gfx_override(const std::string& text);

}  // namespace danqing
