// JPEG through libjpeg-turbo. Its errors arrive by longjmp: the functions that call setjmp hold no C++ objects,
// everything that owns memory lives in the session structs of their callers.
#include <csetjmp>
#include <cstdio>
#include <exception>
#include <vector>
// In this order: jpeglib.h needs what <cstdio> declares, jerror.h what jpeglib.h does.
// clang-format off
#include <jpeglib.h>
#include <jerror.h>
// clang-format on

#include "base/try.h"
#include "image/codec.h"
#include "image/exif_xmp.h"

namespace danqing::codec {
namespace {

using namespace std::string_view_literals;

constexpr int kExifMarker = JPEG_APP0 + 1;
constexpr auto kExifPrefix = "Exif\0\0"sv, kXmpPrefix = "http://ns.adobe.com/xap/1.0/\0"sv;
constexpr size_t kMaxMarker = 65533;
// A progressive file may list any number of scans, each of which costs a pass over the picture; real ones have
// about ten.
constexpr int kMaxScans = 100;

struct Session {
  jpeg_error_mgr manager{};  // first, so that the library's pointer to it is a pointer to the session
  jmp_buf jump{};
  char error[JMSG_LENGTH_MAX] = "unknown";
};

[[noreturn]] void on_error(j_common_ptr info) {
  auto* s = reinterpret_cast<Session*>(info->err);
  info->err->format_message(info, s->error);
  std::longjmp(s->jump, 1);
}

// Warnings mean damaged data, half a picture: errors here, but for harmless oddities of some writers.
void on_message(j_common_ptr info, int level) {
  if (level >= 0) return;
  switch (info->err->msg_code) {
    case JWRN_ADOBE_XFORM:
    case JWRN_EXTRANEOUS_DATA:
    case JWRN_JFIF_MAJOR:
    case JWRN_TOO_MUCH_DATA: return;
    default: on_error(info);
  }
}

struct Reader : Session {
  jpeg_decompress_struct info{};
  jpeg_progress_mgr progress{};
  bool cmyk = false;
  ~Reader() { jpeg_destroy_decompress(&info); }
};

void on_progress(j_common_ptr info) {
  auto* d = reinterpret_cast<j_decompress_ptr>(info);
  if (d->input_scan_number <= kMaxScans) return;
  auto* s = reinterpret_cast<Session*>(info->err);
  std::snprintf(s->error, sizeof s->error, "more than %d scans", kMaxScans);
  std::longjmp(s->jump, 1);
}

bool read_header(Reader& r, std::string_view bytes) {
  if (setjmp(r.jump)) return false;
  jpeg_create_decompress(&r.info);
  r.info.progress = &r.progress;
  r.progress.progress_monitor = on_progress;
  jpeg_mem_src(&r.info, reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  jpeg_read_header(&r.info, TRUE);
  r.cmyk = r.info.jpeg_color_space == JCS_CMYK || r.info.jpeg_color_space == JCS_YCCK;
  r.info.out_color_space = r.cmyk ? JCS_CMYK : JCS_RGB;
  r.info.dct_method = JDCT_ISLOW;
  // The coefficients of a progressive picture: 2 bytes each, three or four planes, and room for the tables.
  const uint64_t pixels = uint64_t{r.info.image_width} * r.info.image_height;
  r.info.mem->max_memory_to_use = static_cast<long>(pixels * 12 + (uint64_t{64} << 20));
  return true;
}

// Adobe's writers store CMYK inverted; 255 is then no ink.
void cmyk_to_rgb(const uint8_t* row, int width, bool inverted, uint8_t* rgb) {
  for (int x = 0; x < width; ++x, row += 4, rgb += 3) {
    const int flip = inverted ? 0 : 255, k = row[3] ^ flip;
    for (int c = 0; c < 3; ++c) rgb[c] = static_cast<uint8_t>(((row[c] ^ flip) * k + 127) / 255);
  }
}

bool read_pixels(Reader& r, uint8_t* row, uint8_t* rgb) {
  if (setjmp(r.jump)) return false;
  jpeg_start_decompress(&r.info);
  while (r.info.output_scanline < r.info.output_height) {
    uint8_t* const out = rgb + static_cast<size_t>(r.info.output_scanline) * r.info.output_width * 3;
    uint8_t* target = r.cmyk ? row : out;
    jpeg_read_scanlines(&r.info, &target, 1);
    if (r.cmyk) cmyk_to_rgb(row, static_cast<int>(r.info.output_width), r.info.saw_Adobe_marker, out);
  }
  jpeg_finish_decompress(&r.info);
  return true;
}

struct Writer : Session {
  jpeg_compress_struct info{};
  jpeg_destination_mgr destination{};
  std::string bytes;
  std::vector<JOCTET> buffer;
  ~Writer() { jpeg_destroy_compress(&info); }
};

Writer& writer_of(j_compress_ptr info) { return *reinterpret_cast<Writer*>(info->client_data); }

bool append(Writer& w, size_t n) noexcept {
  try {
    w.bytes.append(reinterpret_cast<const char*>(w.buffer.data()), n);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

void start_buffer(j_compress_ptr info) {
  info->dest->next_output_byte = writer_of(info).buffer.data();
  info->dest->free_in_buffer = writer_of(info).buffer.size();
}

boolean flush_buffer(j_compress_ptr info) {
  if (!append(writer_of(info), writer_of(info).buffer.size())) ERREXIT1(info, JERR_OUT_OF_MEMORY, 0);
  start_buffer(info);
  return TRUE;
}

void flush_rest(j_compress_ptr info) {
  if (!append(writer_of(info), writer_of(info).buffer.size() - info->dest->free_in_buffer))
    ERREXIT1(info, JERR_OUT_OF_MEMORY, 0);
}

void write_marker(Writer& w, const std::string& content) {
  jpeg_write_marker(&w.info, kExifMarker, reinterpret_cast<const JOCTET*>(content.data()),
                    static_cast<unsigned>(content.size()));
}

bool write_image(Writer& w, const Image& image, int quality, const std::string& exif, const std::string& xmp) {
  if (setjmp(w.jump)) return false;
  jpeg_create_compress(&w.info);
  w.info.client_data = &w;
  w.destination = {nullptr, 0, start_buffer, flush_buffer, flush_rest};
  w.info.dest = &w.destination;
  w.info.image_width = static_cast<JDIMENSION>(image.width);
  w.info.image_height = static_cast<JDIMENSION>(image.height);
  w.info.input_components = 3;
  w.info.in_color_space = JCS_RGB;
  jpeg_set_defaults(&w.info);
  jpeg_set_quality(&w.info, quality, TRUE);
  w.info.optimize_coding = TRUE;
  if (quality >= 90)  // full colour resolution where quality is asked for: half of it shows on thin red lines
    w.info.comp_info[0].h_samp_factor = w.info.comp_info[0].v_samp_factor = 1;
  jpeg_start_compress(&w.info, TRUE);
  if (!exif.empty()) write_marker(w, exif);
  if (!xmp.empty()) write_marker(w, xmp);
  while (w.info.next_scanline < w.info.image_height) {
    auto* row = const_cast<JSAMPROW>(image.pixels.data() +
                                     static_cast<size_t>(w.info.next_scanline) * static_cast<size_t>(image.width) * 3);
    jpeg_write_scanlines(&w.info, &row, 1);
  }
  jpeg_finish_compress(&w.info);
  return true;
}

void use_session(Session& s) {
  jpeg_std_error(&s.manager);
  s.manager.error_exit = on_error;
  s.manager.emit_message = on_message;
}

}  // namespace

Result<Image> decode_jpeg(std::string_view bytes) {
  Reader r;
  use_session(r);
  r.info.err = &r.manager;
  if (!read_header(r, bytes)) return bad_input("[image] expected a valid JPEG header, got a damaged file: {}", r.error);
  DQ_CHECK(check_decoded_size("JPEG", r.info.image_width, r.info.image_height));
  Image image{static_cast<int>(r.info.image_width), static_cast<int>(r.info.image_height), {}};
  std::vector<uint8_t> row(r.cmyk ? size_t{4} * r.info.image_width : 0);
  image.pixels.resize(size_t{3} * r.info.image_width * r.info.image_height);
  if (!read_pixels(r, row.data(), image.pixels.data()))
    return bad_input("[image] expected {}x{} pixels in the JPEG, got a damaged file: {}", image.width, image.height,
                     r.error);
  return image;
}

Result<std::string> encode_jpeg(const Image& image, const ImageMetadata& metadata, int quality) {
  if (image.width > JPEG_MAX_DIMENSION || image.height > JPEG_MAX_DIMENSION)
    return usage_error("[image] expected at most {0}x{0} pixels for a JPEG, got {1}x{2}; use PNG", JPEG_MAX_DIMENSION,
                       image.width, image.height);
  std::string exif, xmp;
  if (!metadata.empty()) xmp = std::string(kXmpPrefix) + make_xmp(metadata);
  if (const auto p = metadata.find("parameters"); p != metadata.end())
    exif = std::string(kExifPrefix) + make_exif(p->second);
  for (const std::string* marker : {&exif, &xmp})
    if (marker->size() > kMaxMarker)
      return usage_error("[image] expected metadata of at most {} bytes for a JPEG, got {}; use PNG or WebP",
                         kMaxMarker, marker->size());
  Writer w;
  use_session(w);
  w.info.err = &w.manager;
  w.buffer.resize(size_t{1} << 16);
  if (!write_image(w, image, quality, exif, xmp))
    return fail(ErrorCode::failed, "[image] expected to write a JPEG, got: {}", w.error);
  return std::move(w.bytes);
}

namespace {

struct Segments {
  std::string_view exif, xmp;
};

Result<Segments> segments_of(std::string_view bytes) {
  std::string_view exif, xmp;
  for (size_t at = 2;;) {
    while (at + 1 < bytes.size() && bytes[at] == '\xff' && bytes[at + 1] == '\xff') ++at;  // fill bytes
    if (bytes.size() < at + 4 || bytes[at] != '\xff')
      return bad_input("[image] expected a JPEG marker at byte {}, got {}", at,
                       bytes.size() < at + 4 ? "the end of the file" : "other data");
    const auto u8 = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
    const int marker = u8(at + 1);
    if (marker == 0xda || marker == 0xd9) return Segments{exif, xmp};  // the picture's data begins, or the file ends
    const size_t length = static_cast<size_t>(u8(at + 2)) << 8 | u8(at + 3);
    if (length < 2 || length > bytes.size() - at - 2)
      return bad_input("[image] expected a JPEG segment of {} bytes at byte {}, got a truncated file", length, at);
    const std::string_view content = bytes.substr(at + 4, length - 2);
    if (marker == kExifMarker && content.substr(0, kExifPrefix.size()) == kExifPrefix && exif.empty()) exif = content;
    if (marker == kExifMarker && content.substr(0, kXmpPrefix.size()) == kXmpPrefix && xmp.empty())
      xmp = content.substr(kXmpPrefix.size());
    at += 2 + length;
  }
}

}  // namespace

Result<ImageMetadata> jpeg_metadata(std::string_view bytes) {
  DQ_TRY(const Segments s, segments_of(bytes));
  return merge(s.exif, s.xmp);
}

int jpeg_orientation(std::string_view bytes) {
  const auto s = segments_of(bytes);
  return s ? read_orientation(s->exif) : 1;
}

}  // namespace danqing::codec
