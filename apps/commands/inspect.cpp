// danqing inspect: what a model directory, a tensor file or a picture holds. Reads headers only.
#include <fmt/format.h>

#include <cstdio>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "base/try.h"
#include "base/units.h"
#include "checkpoint/describe.h"
#include "checkpoint/file_content.h"
#include "commands.h"
#include "danqing/image.h"
#include "fetch/models.h"

namespace danqing::app {
namespace {

struct Options {
  std::string path;
  bool json = false, tensors = false;
};

Result<Json> describe_picture(const MappedFile& file) {
  const std::string_view bytes(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  auto metadata = read_image_metadata(bytes);
  if (!metadata) return bad_input("[inspect] {}: {}", file.path().string(), metadata.error().message);
  return Json{{"path", file.path().string()}, {"kind", "picture"}, {"bytes", bytes.size()}, {"metadata", *metadata}};
}

// Values have many lines; each is made safe for the terminal by itself.
std::string picture_text(const Json& d) {
  std::string out = fmt::format("{}: picture, {}\n", one_line(d["path"].get<std::string>(), 4096),
                                format_bytes(d["bytes"].get<uint64_t>()));
  if (d["metadata"].empty()) out += "no embedded metadata\n";
  for (const auto& [key, value] : d["metadata"].items()) {
    out += one_line(key) + ":\n";
    const std::string text = value.get<std::string>();
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = std::min(text.find('\n', begin), text.size());
      out += "  " + one_line(std::string_view(text).substr(begin, end - begin), 1 << 20) + "\n";
      begin = end + 1;
    }
  }
  return out;
}

Result<int> run(Options& o) {
  DQ_TRY(o.path, fetch::resolve_model(o.path));
  std::error_code ec;
  const bool directory = std::filesystem::is_directory(o.path, ec);
  std::shared_ptr<const MappedFile> file;
  if (!directory) {
    DQ_TRY(file, MappedFile::open(o.path));
  }
  const bool picture = file && file_content(file->bytes()) == FileContent::picture;
  DQ_TRY(const Json d, picture ? describe_picture(*file) : describe_path(o.path, o.tensors));
  const std::string text = o.json ? dump_json(d, 2) + "\n" : picture ? picture_text(d) : description_text(d);
  std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace

void add_inspect(CLI::App& app, Command& command) {
  auto o = std::make_shared<Options>();
  CLI::App* c = app.add_subcommand("inspect", "Say what a model directory, a tensor file or a picture holds");
  c->footer(
      "Examples:\n"
      "  danqing inspect ERNIE-Image                  a pipeline: components, parameters, dtypes, bytes\n"
      "  danqing inspect model.gguf --tensors         every tensor of a file\n"
      "  danqing inspect cat.png                      the prompt and settings a picture was made with\n"
      "  danqing inspect ERNIE-Image/vae --json       the same for programs");
  c->add_option("path", o->path, "Directory, .safetensors, .gguf, index .json, or a PNG, JPEG or WebP picture")
      ->required();
  c->add_flag("--json", o->json, "Print JSON");
  c->add_flag("--tensors", o->tensors, "List every tensor");
  c->callback([o, &command] { command = [o] { return run(*o); }; });
}

}  // namespace danqing::app
