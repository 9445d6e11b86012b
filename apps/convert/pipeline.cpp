#include "convert/pipeline.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "base/text.h"
#include "base/try.h"
#include "checkpoint/checkpoint.h"

namespace danqing::app {
namespace {

namespace fs = std::filesystem;

/// A folder that grows beside its target and takes its name at the end; removed when it never does.
class PartFolder {
 public:
  explicit PartFolder(fs::path target) : target_(std::move(target)) {}
  ~PartFolder() {
    std::error_code ec;
    if (!part_.empty()) fs::remove_all(part_, ec);
  }
  PartFolder(const PartFolder&) = delete;
  PartFolder& operator=(const PartFolder&) = delete;

  Result<void> create() {
    const fs::path part = target_.parent_path() / fmt::format(".danqing-part{}", ::getpid());
    std::error_code ec;
    if (!fs::create_directory(part, ec) || ec)
      return fail(ErrorCode::failed, "[file] cannot create {}: {}", part.string(),
                  ec ? ec.message() : std::string("it exists already"));
    part_ = part;
    return {};
  }
  Result<void> publish() {
    std::error_code ec;
    fs::rename(part_, target_, ec);  // an empty folder in the way is replaced, a full one is not
    if (ec) return fail(ErrorCode::failed, "[file] cannot write {}: {}", target_.string(), ec.message());
    part_.clear();
    return {};
  }
  const fs::path& path() const { return part_; }

 private:
  fs::path target_, part_;
};

bool is_weights(const fs::path& file) {
  const std::string name = file.filename().string();
  const auto ends = [&](std::string_view tail) {
    return name.size() >= tail.size() && name.compare(name.size() - tail.size(), tail.size(), tail) == 0;
  };
  return name.find(".safetensors") != std::string::npos || ends(".gguf") || ends(".bin") || ends(".ckpt") ||
         ends(".pt") || ends(".pth") || ends(".msgpack") || ends(".h5") || ends(".onnx");
}

Error copy_error(const fs::path& from, const std::error_code& ec) {
  return fail(ErrorCode::failed, "[file] cannot copy {}: {}", from.string(), ec.message());
}

/// Files and folders of `from`; links become what they point at, as in the caches of download tools.
Result<void> copy_folder(const fs::path& from, const fs::path& to, bool weights) {
  std::error_code ec;
  fs::create_directories(to, ec);
  if (ec) return copy_error(to, ec);
  for (fs::directory_iterator it(from, ec), end; !ec && it != end; it.increment(ec)) {
    const fs::path target = to / it->path().filename();
    std::error_code copying;
    if (it->path().filename().string()[0] == '.') continue;
    if (it->is_directory(copying)) {
      DQ_CHECK(copy_folder(it->path(), target, weights));
    } else if (it->is_regular_file(copying) && (weights || !is_weights(it->path()))) {
      fs::copy_file(it->path(), target, copying);
    }
    if (copying) return copy_error(it->path(), copying);
  }
  return ec ? Result<void>(copy_error(from, ec)) : Result<void>();
}

/// What a quantising library left in config.json describes weights that are gone now.
Result<void> drop_quantization_config(const fs::path& config) {
  std::error_code ec;
  if (!fs::exists(config, ec)) return {};
  DQ_TRY(Json json, read_json(config));
  bool changed = json.is_object() && json.erase("quantization_config") > 0;
  if (json.is_object() && json.contains("text_config") && json["text_config"].is_object())
    changed |= json["text_config"].erase("quantization_config") > 0;
  if (!changed) return {};
  const std::string text = dump_json(json, 2) + "\n";
  return write_file(config, text);
}

}  // namespace

Result<Json> convert_pipeline(const fs::path& in, const fs::path& out, const std::vector<std::string>& components,
                              bool named, const ConvertSettings& s, std::vector<bool>& matched) {
  const auto start = std::chrono::steady_clock::now();
  DQ_TRY(const Checkpoint checkpoint, open_checkpoint({.model = in}));
  std::vector<std::string> roles;
  for (const auto& [role, files] : checkpoint.components) roles.push_back(role);
  for (const std::string& c : components)
    if (named && !checkpoint.find(c))  // of the usual ones a model may lack some
      return usage_error("[--components] expected parts of the pipeline ({}), got '{}'", fmt::join(roles, ", "),
                         one_line(c, 40));

  PartFolder folder(out);
  if (!s.dry_run) {
    DQ_TRY(const Json index, read_json(checkpoint.root / "model_index.json"));
    DQ_CHECK(folder.create());
    std::error_code ec;
    for (fs::directory_iterator it(checkpoint.root, ec), end; !ec && it != end; it.increment(ec)) {
      const std::string name = it->path().filename().string();
      std::error_code copying;
      if (name[0] == '.' || checkpoint.find(name)) continue;
      if (it->is_directory(copying) && index.contains(name))
        DQ_CHECK(copy_folder(it->path(), folder.path() / name, false));
      else if (it->is_regular_file(copying) && !is_weights(it->path()))
        fs::copy_file(it->path(), folder.path() / name, copying);
      if (copying) return copy_error(it->path(), copying);
    }
    if (ec) return copy_error(checkpoint.root, ec);
  }

  Json report = {
      {"input", in.string()}, {"output", out.string()}, {"components", Json::array()}, {"copied", Json::array()}};
  uint64_t bytes_in = 0, bytes_out = 0;
  for (const std::string& role : roles) {
    const ComponentFiles& files = *checkpoint.find(role);
    const bool converts = std::find(components.begin(), components.end(), role) != components.end();
    if (!s.dry_run) DQ_CHECK(copy_folder(files.path, folder.path() / role, !converts));
    if (!converts) {
      report["copied"].push_back(role);
      continue;
    }
    const bool denoiser = role == "transformer" || role == "vae";
    const fs::path name = std::string(denoiser ? "diffusion_pytorch_model" : "model") +
                          (s.format == TensorSource::Format::gguf ? ".gguf" : ".safetensors");
    DQ_TRY(Json part, convert_file(*files.source, s.dry_run ? name : folder.path() / role / name, s, matched));
    if (!s.dry_run) DQ_CHECK(drop_quantization_config(folder.path() / role / "config.json"));
    part["role"] = role;
    part["output"] = (out / role / name).string();
    bytes_in += part["bytes_in"].get<uint64_t>();
    bytes_out += part["bytes_out"].get<uint64_t>();
    report["components"].push_back(std::move(part));
  }
  if (!s.dry_run) DQ_CHECK(folder.publish());
  report["bytes_in"] = bytes_in;
  report["bytes_out"] = bytes_out;
  if (!s.dry_run) report["seconds"] = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

}  // namespace danqing::app
