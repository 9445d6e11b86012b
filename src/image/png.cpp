// PNG through libpng. libpng reports errors by longjmp: the functions that call setjmp hold no C++ objects, everything
// that owns memory lives in the session structs of their callers.
#include <png.h>

#include <csetjmp>
#include <cstdio>
#include <exception>
#include <vector>

#include "base/try.h"
#include "image/codec.h"
#include "image/unicode.h"

namespace danqing::codec {
namespace {

struct Session {
  char error[128] = "unknown";
};

void on_error(png_structp png, png_const_charp message) {
  auto* s = static_cast<Session*>(png_get_error_ptr(png));
  std::snprintf(s->error, sizeof s->error, "%s", message);
  png_longjmp(png, 1);
}
void on_warning(png_structp, png_const_charp) {}  // about ancillary chunks, which are not used here

struct Reader : Session {
  std::string_view bytes;
  png_structp png = nullptr;
  png_infop info = nullptr;
  int width = 0, height = 0, channels = 0, passes = 1;
  size_t packed_row = 0;  // bytes of a row as stored, before the transformations

  explicit Reader(std::string_view b) : bytes(b) {
    png = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, on_error, on_warning);
    if (png) info = png_create_info_struct(png);
  }
  ~Reader() { png_destroy_read_struct(&png, &info, nullptr); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
};

void read_bytes(png_structp png, png_bytep out, size_t n) {
  auto* r = static_cast<Reader*>(png_get_io_ptr(png));
  if (n > r->bytes.size()) png_error(png, "the file ends early");
  r->bytes.copy(reinterpret_cast<char*>(out), n);
  r->bytes.remove_prefix(n);
}

// Header and transformations to 8-bit RGB or RGBA.
bool read_header(Reader& r) {
  if (setjmp(png_jmpbuf(r.png))) return false;
  png_set_read_fn(r.png, &r, read_bytes);
  png_set_user_limits(r.png, static_cast<png_uint_32>(kMaxSide), static_cast<png_uint_32>(kMaxSide));
  png_set_keep_unknown_chunks(r.png, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);  // text and profiles are not even inflated
  png_read_info(r.png, r.info);
  r.packed_row = png_get_rowbytes(r.png, r.info);
  png_set_expand(r.png);
  png_set_scale_16(r.png);
  png_set_gray_to_rgb(r.png);
  r.passes = png_set_interlace_handling(r.png);
  png_read_update_info(r.png, r.info);
  r.width = static_cast<int>(png_get_image_width(r.png, r.info));
  r.height = static_cast<int>(png_get_image_height(r.png, r.info));
  r.channels = png_get_channels(r.png, r.info);
  return true;
}

// `buffer`: one row, or all rows when the picture is interlaced.
bool read_pixels(Reader& r, uint8_t* buffer, uint8_t* rgb) {
  if (setjmp(png_jmpbuf(r.png))) return false;
  const size_t stride = static_cast<size_t>(r.width) * static_cast<size_t>(r.channels);
  for (int pass = 0; pass < r.passes; ++pass)
    for (int y = 0; y < r.height; ++y) {
      uint8_t* row = buffer + (r.passes > 1 ? static_cast<size_t>(y) * stride : 0);
      png_read_row(r.png, row, nullptr);
      if (pass + 1 == r.passes)
        to_rgb_on_white(row, r.width, r.channels, rgb + static_cast<size_t>(y) * static_cast<size_t>(r.width) * 3);
    }
  return true;
}

struct Writer : Session {
  std::string bytes;
  std::vector<png_text> texts;
  png_structp png = nullptr;
  png_infop info = nullptr;
  Writer() {
    png = png_create_write_struct(PNG_LIBPNG_VER_STRING, this, on_error, on_warning);
    if (png) info = png_create_info_struct(png);
  }
  ~Writer() { png_destroy_write_struct(&png, &info); }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;
};

bool append(std::string& to, const uint8_t* data, size_t n) noexcept {
  try {
    to.append(reinterpret_cast<const char*>(data), n);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

void write_bytes(png_structp png, png_bytep data, size_t n) {
  auto* w = static_cast<Writer*>(png_get_io_ptr(png));
  if (!append(w->bytes, data, n)) png_error(png, "out of memory");
}
void flush_bytes(png_structp) {}

bool write_image(Writer& w, const Image& image) {
  if (setjmp(png_jmpbuf(w.png))) return false;
  png_set_write_fn(w.png, &w, write_bytes, flush_bytes);
  png_set_user_limits(w.png, 0x7fffffff, 0x7fffffff);
  png_set_IHDR(w.png, w.info, static_cast<png_uint_32>(image.width), static_cast<png_uint_32>(image.height), 8,
               PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  png_set_text(w.png, w.info, w.texts.data(), static_cast<int>(w.texts.size()));
  png_write_info(w.png, w.info);
  for (int y = 0; y < image.height; ++y)
    png_write_row(w.png, image.pixels.data() + static_cast<size_t>(y) * static_cast<size_t>(image.width) * 3);
  png_write_end(w.png, nullptr);
  return true;
}

// A keyword as the format allows it: 1 to 79 printable Latin-1 characters, no outer or double spaces.
bool is_keyword(std::string_view k) {
  if (k.empty() || k.size() > 79 || k.front() == ' ' || k.back() == ' ' || k.find("  ") != k.npos) return false;
  for (const char c : k) {
    const auto u = static_cast<uint8_t>(c);
    if (u < 32 || (u > 126 && u < 161)) return false;
  }
  return true;
}

}  // namespace

Result<Image> decode_png(std::string_view bytes) {
  Reader r(bytes);
  if (!r.info) return fail(ErrorCode::failed, "[image] expected memory for the PNG decoder, got none");
  if (!read_header(r)) return bad_input("[image] expected a valid PNG header, got a damaged file: {}", r.error);
  DQ_CHECK(check_decoded_size("PNG", r.width, r.height));
  // Deflate reaches 1032:1 at most, so a file that cannot hold its rows is refused before they are allocated.
  if (r.packed_row * static_cast<size_t>(r.height) / 1032 > bytes.size())
    return bad_input("[image] expected {}x{} pixels in the PNG, got {} bytes, which cannot hold them", r.width,
                     r.height, bytes.size());
  if (r.channels != 3 && r.channels != 4)
    return bad_input("[image] expected 3 or 4 channels in the PNG, got {}", r.channels);
  Image image{r.width, r.height, {}};
  const size_t pixels = static_cast<size_t>(r.width) * static_cast<size_t>(r.height);
  std::vector<uint8_t> buffer((r.passes > 1 ? pixels : static_cast<size_t>(r.width)) * static_cast<size_t>(r.channels));
  image.pixels.resize(3 * pixels);
  if (!read_pixels(r, buffer.data(), image.pixels.data()))
    return bad_input("[image] expected {}x{} pixels in the PNG, got a damaged file: {}", r.width, r.height, r.error);
  return image;
}

Result<std::string> encode_png(const Image& image, const ImageMetadata& metadata) {
  struct Text {
    std::string key, value;
    bool latin1;
  };
  std::vector<Text> owned;
  owned.reserve(metadata.size());
  for (const auto& [key, value] : metadata) {
    auto keyword = utf8_to_latin1(key);
    if (!keyword || !is_keyword(*keyword))
      return usage_error("[image] expected a metadata key of 1 to 79 printable Latin-1 characters, got '{}'", key);
    if (value.find('\0') != value.npos || value.size() > 0x7fffff00)
      return usage_error("[image] expected metadata text without NUL and below 2 GiB under '{}', got other", key);
    auto latin1 = utf8_to_latin1(value);
    owned.push_back({*keyword, latin1 ? *latin1 : encode_utf8(decode_utf8(value)), latin1.has_value()});
  }
  Writer w;
  if (!w.info) return fail(ErrorCode::failed, "[image] expected memory for the PNG encoder, got none");
  for (Text& t : owned) {
    png_text text{};
    text.compression = t.latin1 ? PNG_TEXT_COMPRESSION_NONE : PNG_ITXT_COMPRESSION_NONE;
    text.key = t.key.data();
    text.text = t.value.data();
    text.text_length = t.latin1 ? t.value.size() : 0;
    text.itxt_length = t.latin1 ? 0 : t.value.size();
    w.texts.push_back(text);
  }
  if (!write_image(w, image)) return fail(ErrorCode::failed, "[image] expected to write a PNG, got: {}", w.error);
  return std::move(w.bytes);
}

}  // namespace danqing::codec
