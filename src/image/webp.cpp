// WebP through libwebp, metadata through libwebpmux.
#include <webp/decode.h>
#include <webp/encode.h>
#include <webp/mux.h>

#include <memory>
#include <vector>

#include "base/try.h"
#include "image/codec.h"
#include "image/exif_xmp.h"

namespace danqing::codec {
namespace {

struct FreeWebp {
  void operator()(uint8_t* p) const { WebPFree(p); }
};
struct DeleteMux {
  void operator()(WebPMux* m) const { WebPMuxDelete(m); }
};
using Mux = std::unique_ptr<WebPMux, DeleteMux>;

WebPData view(std::string_view bytes) { return {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}; }

std::string_view chunk(const WebPMux* mux, const char* name) {
  WebPData data{};
  if (WebPMuxGetChunk(mux, name, &data) != WEBP_MUX_OK) return {};
  return {reinterpret_cast<const char*>(data.bytes), data.size};
}

Result<WebPBitstreamFeatures> features_of(std::string_view bytes) {
  uint64_t declared = 0;  // RIFF: the bytes after the first eight
  for (size_t i = 0; i < 4 && bytes.size() >= 8; ++i) declared |= uint64_t{static_cast<uint8_t>(bytes[4 + i])} << 8 * i;
  if (declared + 8 > bytes.size())
    return bad_input("[image] expected {} bytes in the WebP, got {}: the file is truncated", declared + 8,
                     bytes.size());
  WebPBitstreamFeatures f{};
  const VP8StatusCode status = WebPGetFeatures(view(bytes).bytes, bytes.size(), &f);
  if (status != VP8_STATUS_OK)
    return bad_input("[image] expected a valid WebP header, got a damaged file (libwebp status {})",
                     static_cast<int>(status));
  if (f.has_animation) return bad_input("[image] expected a still WebP picture, got an animation");
  return f;
}

}  // namespace

Result<Image> decode_webp(std::string_view bytes) {
  DQ_TRY(const WebPBitstreamFeatures f, features_of(bytes));
  DQ_CHECK(check_decoded_size("WebP", f.width, f.height));
  const int channels = f.has_alpha ? 4 : 3;
  const size_t stride = static_cast<size_t>(f.width) * static_cast<size_t>(channels);
  std::vector<uint8_t> pixels(stride * static_cast<size_t>(f.height));
  const auto decode = f.has_alpha ? WebPDecodeRGBAInto : WebPDecodeRGBInto;
  if (!decode(view(bytes).bytes, bytes.size(), pixels.data(), pixels.size(), static_cast<int>(stride)))
    return bad_input("[image] expected {}x{} pixels in the WebP, got a damaged file", f.width, f.height);
  Image image{f.width, f.height, std::move(pixels)};
  if (f.has_alpha) {  // in place: a row never overtakes what is still to be read
    const size_t rgb_stride = static_cast<size_t>(f.width) * 3;
    for (size_t y = 0; y < static_cast<size_t>(f.height); ++y)
      to_rgb_on_white(image.pixels.data() + y * stride, f.width, 4, image.pixels.data() + y * rgb_stride);
    image.pixels.resize(rgb_stride * static_cast<size_t>(f.height));
  }
  return image;
}

Result<std::string> encode_webp(const Image& image, const ImageMetadata& metadata, int quality) {
  if (image.width > WEBP_MAX_DIMENSION || image.height > WEBP_MAX_DIMENSION)
    return usage_error("[image] expected at most {0}x{0} pixels for a WebP, got {1}x{2}; use PNG", WEBP_MAX_DIMENSION,
                       image.width, image.height);
  uint8_t* raw = nullptr;
  const size_t size = quality >= 100
                          ? WebPEncodeLosslessRGB(image.pixels.data(), image.width, image.height, image.width * 3, &raw)
                          : WebPEncodeRGB(image.pixels.data(), image.width, image.height, image.width * 3,
                                          static_cast<float>(quality), &raw);
  const std::unique_ptr<uint8_t, FreeWebp> owner(raw);
  if (size == 0)
    return fail(ErrorCode::failed, "[image] expected to write a WebP, got an encoder failure (out of memory)");
  const std::string_view plain(reinterpret_cast<const char*>(raw), size);
  if (metadata.empty()) return std::string(plain);

  const WebPData picture = view(plain);
  const Mux mux(WebPMuxCreate(&picture, 0));
  bool ok = mux != nullptr;
  const auto set = [&](const char* name, const std::string& content) {
    const WebPData data = view(content);
    ok = ok && WebPMuxSetChunk(mux.get(), name, &data, 1) == WEBP_MUX_OK;
  };
  if (const auto p = metadata.find("parameters"); p != metadata.end()) set("EXIF", make_exif(p->second));
  set("XMP ", make_xmp(metadata));
  WebPData assembled{};
  ok = ok && WebPMuxAssemble(mux.get(), &assembled) == WEBP_MUX_OK;
  std::string out(reinterpret_cast<const char*>(assembled.bytes), assembled.size);
  WebPDataClear(&assembled);
  if (!ok) return fail(ErrorCode::failed, "[image] expected to add metadata to a WebP, got a muxer failure");
  return out;
}

Result<ImageMetadata> webp_metadata(std::string_view bytes) {
  const WebPData data = view(bytes);
  const Mux mux(WebPMuxCreate(&data, 0));
  if (!mux) return bad_input("[image] expected a whole WebP file, got a damaged or truncated one");
  return merge(chunk(mux.get(), "EXIF"), chunk(mux.get(), "XMP "));
}

}  // namespace danqing::codec
