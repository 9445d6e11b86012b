// danqing convert: model files in other dtypes: GGUF with quantised blocks, or safetensors in bf16, f16, fp8.
#include <fmt/format.h>

#include <cstdio>

#include "base/text.h"
#include "base/try.h"
#include "base/units.h"
#include "commands.h"
#include "common/interrupt.h"
#include "common/progress.h"
#include "convert/pipeline.h"
#include "device/device.h"
#include "fetch/models.h"

namespace danqing::app {
namespace {

namespace fs = std::filesystem;
using Format = TensorSource::Format;

struct Options {
  std::string in, out, type, format;
  std::vector<std::string> rules, components = {"transformer", "text_encoder", "pe"};
  int threads = 0;
  bool check = false, dry_run = false, overwrite = false, json = false, quiet = false, components_given = false;
};

/// A bar on a terminal, a line every tenth elsewhere.
class Progress {
 public:
  explicit Progress(ProgressView::Mode mode) : mode_(mode) {}
  ~Progress() { clear(); }
  void show(uint64_t done, uint64_t total, const std::string& tensor) {
    const double share = total ? static_cast<double>(done) / static_cast<double>(total) : 1;
    if (mode_ == ProgressView::Mode::silent || static_cast<int>(share * 1000) == last_) return;
    const bool tenth = last_ < 0 || static_cast<int>(share * 10) != last_ / 100;
    last_ = static_cast<int>(share * 1000);
    if (mode_ == ProgressView::Mode::bar) {
      std::fprintf(stderr, "\r\033[K%s %3.0f%% %s", bar_text(share, 24).c_str(), share * 100,
                   one_line(tensor, 44).c_str());
      std::fflush(stderr);
      drawn_ = true;
    } else if (tenth) {
      std::fprintf(stderr, "convert %.0f%% of %s\n", share * 100, format_bytes(total).c_str());
    }
  }
  void clear() {
    if (drawn_) std::fprintf(stderr, "\r\033[K");
    drawn_ = false;
  }

 private:
  ProgressView::Mode mode_;
  int last_ = -1;
  bool drawn_ = false;
};

bool ends_with(std::string_view s, std::string_view tail) {
  return s.size() >= tail.size() && s.substr(s.size() - tail.size()) == tail;
}

Result<Format> format_of(const Options& o, bool pipeline) {
  const bool gguf = ends_with(o.out, ".gguf"), safetensors = ends_with(o.out, ".safetensors");
  if (o.format == "safetensors" || (o.format.empty() && safetensors)) return Format::safetensors;
  if (o.format == "gguf" || (o.format.empty() && (gguf || pipeline))) return Format::gguf;
  if (!o.format.empty())
    return usage_error("[--format] expected gguf or safetensors, got '{}'", one_line(o.format, 40));
  return usage_error("[convert] expected an output ending in .gguf or .safetensors, got {}", o.out);
}

std::string tensors_text(const Json& part) {
  std::string out;
  for (const Json& t : part["tensors"]) {
    out += fmt::format("  {:<8} <- {:<10} {:<20}", t["type"].get<std::string>(), t["from"].get<std::string>(),
                       to_string(t["shape"].get<Shape>()));
    if (t.contains("rel_l2"))
      out += fmt::format(" rel {:.2e} max {:.2e}", t["rel_l2"].get<double>(), t["max_abs"].get<double>());
    out += " " + one_line(t["name"].get<std::string>(), 1024);
    if (t.contains("reason")) out += " (" + t["reason"].get<std::string>() + ")";
    out += "\n";
  }
  return out;
}

std::string part_text(const Json& part, bool tensors) {
  std::string types;
  for (const auto& [name, t] : part["types"].items())
    types += fmt::format("{}{} {} ({})", types.empty() ? "" : ", ", t["tensors"].get<uint64_t>(), name,
                         format_bytes(t["bytes"].get<uint64_t>()));
  std::string out = tensors ? tensors_text(part) : "";
  out += fmt::format("{}: {} from {}: {}\n", one_line(part["output"].get<std::string>(), 4096),
                     format_bytes(part["bytes_out"].get<uint64_t>()), format_bytes(part["bytes_in"].get<uint64_t>()),
                     types);
  if (part.contains("rel_l2"))
    out += fmt::format("  error of all weights together {:.2e}, greatest in {}\n", part["rel_l2"].get<double>(),
                       one_line(part["worst"].get<std::string>(), 1024));
  return out;
}

std::string report_text(const Json& report, bool tensors) {
  std::string out;
  if (report.contains("components")) {
    for (const Json& part : report["components"]) out += part_text(part, tensors);
    for (const Json& role : report["copied"]) out += role.get<std::string>() + ": copied\n";
  } else {
    out = part_text(report, tensors);
  }
  if (report.contains("seconds")) out += fmt::format("done in {}\n", format_seconds(report["seconds"].get<double>()));
  return out;
}

Result<int> run(Options& o) {
  DQ_TRY(o.in, fetch::resolve_model(o.in));
  std::error_code ec;
  const bool pipeline = fs::exists(fs::path(o.in) / "model_index.json", ec);
  ConvertSettings s{.check = o.check, .dry_run = o.dry_run, .overwrite = o.overwrite};
  DQ_TRY(s.format, format_of(o, pipeline));
  DQ_TRY(s.type, parse_type(o.type, s.format, "--type"));
  for (const std::string& r : o.rules) {
    DQ_TRY(TypeRule rule, parse_rule(r, s.format));
    s.rules.push_back(std::move(rule));
  }
  if (!pipeline && o.components_given)
    return usage_error("[--components] expected a pipeline directory (with model_index.json), got {}", o.in);
  if (!o.dry_run && fs::exists(o.out, ec) && (pipeline || fs::is_directory(o.out, ec) || !o.overwrite))
    return usage_error("[convert] {} exists already{}", o.out, pipeline ? "" : "; give another name or --overwrite");
  DQ_TRY(const std::shared_ptr<Device> cpu, Device::open("cpu", {o.threads}));
  s.threads = cpu->threads();

  catch_interrupts();
  Progress progress(ProgressView::mode_for(o.quiet));
  s.progress = [&](uint64_t done, uint64_t total, const std::string& tensor) {
    progress.show(done, total, tensor);
    return !interrupted();
  };
  std::vector<bool> matched(s.rules.size());
  Json report;
  if (pipeline) {
    DQ_TRY(report, convert_pipeline(o.in, o.out, o.components, o.components_given, s, matched));
  } else {
    DQ_TRY(const auto source, TensorSource::open(o.in));
    DQ_TRY(report, convert_file(*source, o.out, s, matched));
  }
  progress.clear();
  for (size_t i = 0; i < matched.size(); ++i)
    if (!matched[i] && !o.quiet)
      std::fprintf(stderr, "note: --tensor-type %s met no tensor\n", one_line(o.rules[i]).c_str());
  const std::string text = o.json ? dump_json(report, 2) + "\n" : report_text(report, o.check || o.dry_run);
  if (!o.quiet || o.json) std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace

void add_convert(CLI::App& app, Command& command) {
  auto o = std::make_shared<Options>();
  CLI::App* c = app.add_subcommand("convert", "Write a model in another dtype: GGUF blocks, bf16, f16, fp8");
  c->footer(
      "Examples:\n"
      "  danqing convert ERNIE-Image ERNIE-Image-q4 --type q4_K          a whole pipeline, ready to run\n"
      "  danqing convert ERNIE-Image/transformer ernie-q6.gguf --type q6_K --check\n"
      "  danqing convert z.safetensors z-q5.gguf --type q5_K --tensor-type '*.feed_forward.w2.*=q6_K'\n"
      "  danqing convert ernie.gguf ernie-fp8.safetensors --type fp8     scaled, as ComfyUI reads it\n"
      "Norms, modulation, the first and last layers and convolutions keep their 16 or 32 bits; embeddings get at\n"
      "least q6_K. --tensor-type overrides that; its TYPE may also be keep or drop.");
  c->add_option("input", o->in, "Pipeline directory, component directory, .safetensors, index .json or .gguf")
      ->required();
  c->add_option("output", o->out, "File ending in .gguf or .safetensors; for a pipeline a new directory")->required();
  c->add_option("--type", o->type,
                "q4_K, q5_K, q6_K, q8_0, q4_0, iq4_xs, mxfp4, ..., bf16, f16, f32; safetensors: fp8 too")
      ->required();
  c->add_option("--tensor-type", o->rules,
                "PATTERN=TYPE for some tensors; * and ? as in file names, else a part of the name")
      ->allow_extra_args(false);
  CLI::Option* components =
      c->add_option("--components", o->components, "Parts of a pipeline to convert; the others are copied")
          ->delimiter(',')
          ->allow_extra_args(false)
          ->capture_default_str();
  c->add_option("--format", o->format, "gguf or safetensors (default: by the output's name; gguf for a pipeline)");
  c->add_option("--threads", o->threads, "CPU threads (default: the physical cores that this process may use)")
      ->check(CLI::Range(0, 1024));
  c->add_flag("--check", o->check, "Measure and print the error of every tensor");
  c->add_flag("--dry-run", o->dry_run, "Only print what every tensor would become");
  c->add_flag("--overwrite", o->overwrite, "Replace an existing file");
  c->add_flag("--json", o->json, "Print the report as JSON");
  c->add_flag("--quiet", o->quiet, "No progress and no report");
  c->callback([o, components, &command] {
    o->components_given = components->count() > 0;
    command = [o] { return run(*o); };
  });
}

}  // namespace danqing::app
