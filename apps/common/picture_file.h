// Pictures that a command takes from the user.
#pragma once
#include <filesystem>

#include "danqing/image.h"

namespace danqing::app {

/// A PNG, JPEG or WebP file of at most 256 MiB. Errors name `option` and the file: bad_input, does_not_fit.
Result<Image> read_picture(const std::filesystem::path& file, const char* option);

}  // namespace danqing::app
