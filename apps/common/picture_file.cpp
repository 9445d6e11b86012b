#include "common/picture_file.h"

#include "base/file.h"
#include "base/try.h"

namespace danqing::app {

Result<Image> read_picture(const std::filesystem::path& file, const char* option) {
  auto bytes = read_text(file);
  auto image = bytes ? decode_image(*bytes) : Result<Image>(bytes.error());
  if (image) return image;
  Error e = image.error();
  // A picture that is damaged is named by its bytes alone; one that cannot be read already has its file's name.
  e.message = fmt::format("[{}] {}: {}", option, file.string(), e.message);
  return e;
}

}  // namespace danqing::app
