#include "pipeline/ernie_image_family.h"
#include "pipeline/family.h"

namespace danqing {

std::span<const FamilyEntry> families() {
  static constexpr FamilyEntry kFamilies[] = {
      {"ErnieImagePipeline", make_ernie_image_family},
  };
  return kFamilies;
}

}  // namespace danqing
