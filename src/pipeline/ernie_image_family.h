// ERNIE-Image as a pipeline: Mistral3 features, shared-modulation DiT, FLUX.2 VAE, optional prompt enhancer.
#pragma once
#include "pipeline/family.h"

namespace danqing {

Result<std::unique_ptr<ModelFamily>> make_ernie_image_family(FamilyContext context);

}  // namespace danqing
