#include "image/exif_xmp.h"

#include <cstdint>

#include "image/unicode.h"

namespace danqing::codec {
namespace {

using namespace std::string_view_literals;

constexpr uint16_t kExifIfd = 0x8769, kUserComment = 0x9286, kOrientation = 0x0112, kLong = 4, kUndefined = 7;
constexpr auto kExifPrefix = "Exif\0\0"sv, kUnicode = "UNICODE\0"sv, kAscii = "ASCII\0\0\0"sv,
               kUndefinedCode = "\0\0\0\0\0\0\0\0"sv;

// Bounds-checked integers of a TIFF structure: reading past the end gives 0 and is remembered by nobody, since offset 0
// (the header itself) is never a valid directory or value.
struct Tiff {
  std::string_view bytes;
  bool big = true;
  uint32_t read(size_t at, size_t size) const {
    if (at > bytes.size() || bytes.size() - at < size) return 0;
    uint32_t v = 0;
    for (size_t i = 0; i < size; ++i)
      v |= uint32_t{static_cast<uint8_t>(bytes[at + i])} << 8 * (big ? size - 1 - i : i);
    return v;
  }
  /// Position of the 12-byte entry with this tag in the directory at `offset`; 0 if absent.
  size_t entry(size_t offset, uint16_t tag) const {
    const uint32_t count = offset == 0 ? 0 : read(offset, 2);
    for (size_t i = 0; i < count; ++i) {
      const size_t at = offset + 2 + 12 * i;
      if (at + 12 > bytes.size()) return 0;
      if (read(at, 2) == tag) return at;
    }
    return 0;
  }
};

std::string decode_unicode_comment(std::string_view text, bool structure_is_big) {
  if (text.substr(0, 2) == "\xfe\xff") return utf16_to_utf8(text.substr(2), true);
  if (text.substr(0, 2) == "\xff\xfe") return utf16_to_utf8(text.substr(2), false);
  // Writers disagree whether the text follows the structure's byte order. Any Latin character tells by its zero byte.
  size_t zeros_first = 0, zeros_second = 0;
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    zeros_first += text[i] == 0;
    zeros_second += text[i + 1] == 0;
  }
  return utf16_to_utf8(text, zeros_first == zeros_second ? structure_is_big : zeros_first > zeros_second);
}

std::string escape_xml(std::string_view text) {
  std::u32string out;
  for (const char32_t c : decode_utf8(text)) {
    if (c == U'&')
      out += U"&amp;";
    else if (c == U'<')
      out += U"&lt;";
    else if (c == U'>')
      out += U"&gt;";
    else if (c == U'\r')
      out += U"&#13;";  // a parser would turn a bare one into a line feed
    else if (c < 0x20 && c != U'\n' && c != U'\t')
      out += U'\ufffd';  // not allowed in XML 1.0
    else
      out += c;
  }
  return encode_utf8(out);
}

std::string unescape_xml(std::string_view text) {
  constexpr std::pair<std::string_view, char> entities[] = {{"&amp;", '&'},  {"&lt;", '<'},    {"&gt;", '>'},
                                                            {"&quot;", '"'}, {"&apos;", '\''}, {"&#13;", '\r'},
                                                            {"&#xD;", '\r'}};
  std::string out;
  for (size_t i = 0; i < text.size();) {
    size_t length = 1;
    char c = text[i];
    for (const auto& [entity, value] : entities)
      if (c == '&' && text.substr(i, entity.size()) == entity) {
        length = entity.size();
        c = value;
        break;
      }
    out.push_back(c);
    i += length;
  }
  return out;
}

// The text between `open` and `close` from `at` on, which is moved behind it.
std::optional<std::string_view> between(std::string_view text, std::string_view open, std::string_view close,
                                        size_t& at) {
  const size_t start = text.find(open, at);
  if (start == text.npos) return {};
  const size_t end = text.find(close, start + open.size());
  if (end == text.npos) return {};
  at = end + close.size();
  return text.substr(start + open.size(), end - start - open.size());
}

}  // namespace

std::string make_exif(std::string_view user_comment) {
  std::string out = "MM";
  const auto put = [&](uint32_t v, int bytes) {
    for (int i = bytes - 1; i >= 0; --i) out.push_back(static_cast<char>(v >> 8 * i & 0xff));
  };
  const std::string text = utf8_to_utf16be(user_comment);
  constexpr uint32_t first_ifd = 8, ifd_bytes = 2 + 12 + 4;
  put(42, 2);
  put(first_ifd, 4);
  put(1, 2), put(kExifIfd, 2), put(kLong, 2), put(1, 4), put(first_ifd + ifd_bytes, 4), put(0, 4);
  put(1, 2), put(kUserComment, 2), put(kUndefined, 2), put(static_cast<uint32_t>(kUnicode.size() + text.size()), 4);
  put(first_ifd + 2 * ifd_bytes, 4), put(0, 4);
  return out.append(kUnicode).append(text);
}

std::optional<std::string> read_user_comment(std::string_view exif) {
  if (exif.substr(0, kExifPrefix.size()) == kExifPrefix) exif.remove_prefix(kExifPrefix.size());
  const bool big = exif.substr(0, 4) == "MM\0*"sv;
  if (!big && exif.substr(0, 4) != "II*\0"sv) return {};
  const Tiff tiff{exif, big};
  const size_t pointer = tiff.entry(tiff.read(4, 4), kExifIfd);
  const size_t entry = pointer == 0 ? 0 : tiff.entry(tiff.read(pointer + 8, 4), kUserComment);
  if (entry == 0) return {};
  const size_t size = tiff.read(entry + 4, 4), at = tiff.read(entry + 8, 4);
  if (size < kUnicode.size() || at > exif.size() || exif.size() - at < size) return {};
  const std::string_view code = exif.substr(at, kUnicode.size());
  const std::string_view text = exif.substr(at + kUnicode.size(), size - kUnicode.size());
  if (code == kUnicode) return decode_unicode_comment(text, big);
  if (code != kAscii && code != kUndefinedCode) return {};
  const std::string_view until_nul = text.substr(0, text.find('\0'));
  return is_utf8(until_nul) ? std::string(until_nul) : latin1_to_utf8(until_nul);
}

int read_orientation(std::string_view exif) {
  if (exif.substr(0, kExifPrefix.size()) == kExifPrefix) exif.remove_prefix(kExifPrefix.size());
  const bool big = exif.substr(0, 4) == "MM\0*"sv;
  if (!big && exif.substr(0, 4) != "II*\0"sv) return 1;
  const Tiff tiff{exif, big};
  const size_t entry = tiff.entry(tiff.read(4, 4), kOrientation);
  const uint32_t value = entry == 0 ? 1 : tiff.read(entry + 8, 2);
  return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
}

std::string make_xmp(const ImageMetadata& metadata) {
  std::string out =
      "<?xpacket begin=\"\xef\xbb\xbf\" id=\"W5M0MpCehiHzreSzNTczkc9d\"?>\n"
      "<x:xmpmeta xmlns:x=\"adobe:ns:meta/\"><rdf:RDF xmlns:rdf=\"http://www.w3.org/1999/02/22-rdf-syntax-ns#\">"
      "<rdf:Description rdf:about=\"\" xmlns:danqing=\"urn:danqing:metadata:1.0\"><danqing:text><rdf:Seq>\n";
  for (const auto& [key, value] : metadata)
    out += "<rdf:li rdf:parseType=\"Resource\"><danqing:key>" + escape_xml(key) + "</danqing:key><danqing:value>" +
           escape_xml(value) + "</danqing:value></rdf:li>\n";
  return out + "</rdf:Seq></danqing:text></rdf:Description></rdf:RDF></x:xmpmeta>\n<?xpacket end=\"r\"?>";
}

ImageMetadata read_xmp(std::string_view packet) {
  ImageMetadata out;
  for (size_t at = 0;;) {
    const auto key = between(packet, "<danqing:key>", "</danqing:key>", at);
    if (!key) return out;
    const auto value = between(packet, "<danqing:value>", "</danqing:value>", at);
    if (!value) return out;
    const std::string text = unescape_xml(*value);
    out[encode_utf8(decode_utf8(unescape_xml(*key)))] = encode_utf8(decode_utf8(text));
  }
}

ImageMetadata merge(std::string_view exif, std::string_view xmp) {
  ImageMetadata out = read_xmp(xmp);
  if (!out.count("parameters"))
    if (auto comment = read_user_comment(exif); comment && !comment->empty()) out["parameters"] = *comment;
  return out;
}

}  // namespace danqing::codec
