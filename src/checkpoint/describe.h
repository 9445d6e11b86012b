// What a model directory or tensor file holds, for people and for programs (danqing inspect).
#pragma once
#include <filesystem>
#include <string>

#include "base/json.h"

namespace danqing {

/// {"path", "kind": "pipeline" | "component" | "tensors", "description", "pipeline_class"?, "parameters", "bytes",
///  "components": [{"role", "class"?, "description", "holds", "path", "format", "files", "tensors", "parameters",
///  "bytes", "dtypes": {NAME: {"tensors", "parameters", "bytes"}}, "metadata": {KEY: TEXT}, "tensor_list"?}],
///  "tokenizer"?, "pe_tokenizer"?, "scheduler"?}. "bytes" count tensor data with its scales, without headers; a tensor
///  of the list that has scales says so in "scale".
/// Any tensor file is described, of whatever kind. Errors: as TensorSource::open and open_checkpoint.
Result<Json> describe_path(const std::filesystem::path& path, bool with_tensors);
/// The same as lines of text, safe for a terminal whatever the file says.
std::string description_text(const Json& description);

}  // namespace danqing
