#include "pipeline/ernie_image_family.h"
#include "pipeline/family.h"
#include "pipeline/z_image_family.h"

namespace danqing {

std::span<const FamilyEntry> families() {
  static constexpr FamilyEntry kFamilies[] = {
      {"ErnieImagePipeline", make_ernie_image_family},
      {"ZImagePipeline", make_z_image_family},
  };
  return kFamilies;
}

}  // namespace danqing
