// The text that travels inside a picture.
#pragma once
#include "danqing/engine.h"
#include "pipeline/settings.h"

namespace danqing {

/// "parameters": the form that A1111 and its readers use. "danqing": JSON with every setting, enough to make it again.
ImageMetadata make_metadata(const GeneratedImage& image, const Settings& settings, const ModelInfo& model,
                            const GenerateRequest& request, ComputeType compute_type);
std::string_view name(ComputeType type);

}  // namespace danqing
