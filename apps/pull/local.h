// What of a model lies here already, and whether the rest fits.
#pragma once
#include <filesystem>
#include <vector>

#include "pull/items.h"

namespace danqing::app {

/// The item's file is there and is the one that is wanted: as the manifest of an earlier pull says (`verify`: and its
/// hash), or by the hub's hash. Then `entry` is filled. Error: cancelled.
Result<bool> lies_here(const fetch::Http& http, const std::filesystem::path& model, const Item& item,
                       const fetch::Manifest& old, bool verify, fetch::ManifestFile& entry);
/// Error (failed): the disk is too small for what is missing, and by how much.
Result<void> check_space(const std::filesystem::path& model, const std::vector<Item>& items);

}  // namespace danqing::app
