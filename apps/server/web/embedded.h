// The page's files (web/), inside the binary. The map is written by cmake/EmbedFiles.cmake.
#pragma once
#include <cstddef>
#include <map>
#include <string_view>

namespace danqing::server {

const std::map<std::string_view, std::string_view>& embedded_files();

}  // namespace danqing::server
