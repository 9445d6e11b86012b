// A pipeline directory to another that runs as it is: chosen components converted, everything else copied.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "convert/file.h"

namespace danqing::app {

/// {"input", "output", "components": [{"role", ...as convert_file}], "copied": [ROLE], "bytes_in", "bytes_out",
/// "seconds"} `out` must not exist; it appears when everything is in it. Errors: as convert_file; usage: a component
/// that the pipeline does not have; bad_input: as open_checkpoint.
Result<Json> convert_pipeline(const std::filesystem::path& in, const std::filesystem::path& out,
                              const std::vector<std::string>& components, bool named, const ConvertSettings& settings,
                              std::vector<bool>& matched);

}  // namespace danqing::app
