#include "checkpoint/file_content.h"

#include <algorithm>
#include <cctype>

#include "base/bytes.h"
#include "base/text.h"

namespace danqing {
namespace {

bool starts_with_ignoring_case(std::string_view text, std::string_view lower) {
  return text.size() >= lower.size() && std::equal(lower.begin(), lower.end(), text.begin(), [](char a, char b) {
           return a == static_cast<char>(std::tolower(static_cast<unsigned char>(b)));
         });
}

// Only the beginning of the file is looked at, so the last character may be cut.
bool is_text(std::string_view s) {
  return valid_utf8_prefix(s) + 3 >= s.size() && std::all_of(s.begin(), s.end(), [](char c) {
           const auto u = static_cast<unsigned char>(c);
           return u >= 0x20 || u == '\n' || u == '\r' || u == '\t';
         });
}

// A header length that could be one, followed by the opening brace of the header.
bool looks_like_safetensors(std::span<const std::byte> b) {
  return b.size() > 8 && b[8] == std::byte{'{'} && load_le<uint64_t>(b.data()) < (uint64_t{1} << 32);
}

struct Magic {
  std::string_view bytes;
  FileContent content;
};
using namespace std::string_view_literals;
constexpr Magic kMagics[] = {
    {"GGUF"sv, FileContent::gguf},
    {"version https://git-lfs"sv, FileContent::lfs_pointer},
    {"PK\x03\x04"sv, FileContent::zip},
    {"PK\x05\x06"sv, FileContent::zip},
    {"\x80\x02"sv, FileContent::pickle},
    {"\x80\x03"sv, FileContent::pickle},
    {"\x80\x04\x95"sv, FileContent::pickle},
    {"\x80\x05\x95"sv, FileContent::pickle},
    {"\x89PNG"sv, FileContent::picture},
    {"\xff\xd8\xff"sv, FileContent::picture},
    {"\x1f\x8b"sv, FileContent::archive},
    {"\xfd"
     "7zXZ"sv,
     FileContent::archive},
    {"7z\xbc\xaf"sv, FileContent::archive},
    {"Rar!"sv, FileContent::archive},
    {"\x28\xb5\x2f\xfd"sv, FileContent::archive},
    {"ggml"sv, FileContent::old_ggml},
    {"lmgg"sv, FileContent::old_ggml},
    {"tjgg"sv, FileContent::old_ggml},
    {"fmgg"sv, FileContent::old_ggml},
};

}  // namespace

FileContent file_content(std::span<const std::byte> bytes) {
  if (bytes.empty()) return FileContent::empty;
  if (looks_like_safetensors(bytes)) return FileContent::safetensors;
  std::string_view head(reinterpret_cast<const char*>(bytes.data()), std::min<size_t>(bytes.size(), 512));
  for (const Magic& m : kMagics)
    if (head.substr(0, m.bytes.size()) == m.bytes) return m.content;
  if (head.substr(0, 4) == "RIFF" && head.size() >= 12 && head.substr(8, 4) == "WEBP") return FileContent::picture;
  if (head.substr(0, 3) == "\xef\xbb\xbf") head.remove_prefix(3);
  while (!head.empty() && std::isspace(static_cast<unsigned char>(head[0]))) head.remove_prefix(1);
  for (std::string_view tag : {"<!doctype"sv, "<html"sv, "<head"sv, "<?xml"sv, "<!--"sv})
    if (starts_with_ignoring_case(head, tag)) return FileContent::html;
  if (!is_text(head)) return FileContent::unknown;
  return !head.empty() && (head[0] == '{' || head[0] == '[') ? FileContent::json : FileContent::text;
}

std::string_view describe(FileContent content) {
  switch (content) {
    case FileContent::safetensors: return "a safetensors file";
    case FileContent::gguf: return "a GGUF file";
    case FileContent::json:
      return "a JSON text (a server's answer saved in place of the file?); download the weights again";
    case FileContent::picture: return "a picture";
    case FileContent::empty: return "an empty file; download it again";
    case FileContent::lfs_pointer:
      return "a Git LFS pointer, not the weights themselves; fetch them with `git lfs pull`";
    case FileContent::html: return "a web page (HTML) saved in place of the file; download the file itself";
    case FileContent::zip:
      return "a zip archive (a PyTorch .bin, .pt or .ckpt file?); get or convert it to safetensors";
    case FileContent::pickle: return "a Python pickle (PyTorch .bin, .pt or .ckpt); get or convert it to safetensors";
    case FileContent::archive: return "a compressed archive; unpack it first";
    case FileContent::old_ggml: return "a ggml file from before GGUF; convert it to GGUF";
    case FileContent::text: return "a text (an error message saved in place of the file?); download the weights again";
    case FileContent::unknown: break;
  }
  return "unknown data";
}

}  // namespace danqing
