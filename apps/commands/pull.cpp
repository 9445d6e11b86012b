// danqing pull: fetch a model.
#include "pull/pull.h"

#include <cstdio>
#include <map>

#include "base/text.h"
#include "base/try.h"
#include "base/units.h"
#include "commands.h"
#include "common/interrupt.h"
#include "convert/plan.h"
#include "device/device.h"
#include "pull/view.h"

namespace danqing::app {
namespace {

struct Options {
  PullSettings pull;
  std::string dir, limit, segment;
  bool json = false, quiet = false;
};

Result<uint64_t> bytes_of(const char* option, std::string text) {
  if (text.empty()) return uint64_t{0};
  for (const char* tail : {"/s", "ps"})
    if (text.size() > 2 && text.substr(text.size() - 2) == tail) text.resize(text.size() - 2);
  auto bytes = parse_bytes(text);
  if (!bytes || *bytes == 0) return usage_error("[{}] expected bytes such as 20MiB or 500K, got '{}'", option, text);
  return bytes;
}

std::string report_text(const Json& r, bool planned, bool own_folder) {
  std::string out;
  size_t present = 0;
  std::string stage;
  for (const Json& f : r["files"]) {
    present += f["state"] == "present" ? 1 : 0;
    if (!planned) continue;
    if (f["stage"] != stage) out += (stage = f["stage"].get<std::string>()) + ":\n";
    out += fmt::format("  {:>10}  {}\n", format_bytes(f["bytes"].get<uint64_t>()),
                       one_line(f["path"].get<std::string>(), 1024));
  }
  std::map<std::string, std::vector<std::string>> reasons;
  for (const Json& k : r["skipped"]) reasons[k["reason"].get<std::string>()].push_back(k["path"].get<std::string>());
  for (const auto& [reason, paths] : reasons) {
    std::string names;
    for (size_t i = 0; i < paths.size() && (i < 3 || planned); ++i) names += (i ? ", " : "") + one_line(paths[i], 200);
    if (paths.size() > 3 && !planned) names += ", ...";
    out += fmt::format("skipped {} ({}): {}\n", paths.size(), reason, names);
  }
  const std::string where = one_line(r["path"].get<std::string>(), 4096);
  if (planned)
    return out + fmt::format("{} files, {} would come to {}\n", r["files"].size(),
                             format_bytes(r["bytes"].get<uint64_t>()), where);
  out += fmt::format("{}: {} files, {} at {}; {} over the network in {}\n", r["model"].get<std::string>(),
                     r["files"].size(), format_bytes(r["bytes"].get<uint64_t>()), where,
                     format_bytes(r["moved"].get<uint64_t>()), format_seconds(r["seconds"].get<double>()));
  if (present == r["files"].size()) out += "nothing to do: it is up to date\n";
  if (r.contains("note")) out += "note: " + one_line(r["note"].get<std::string>(), 1000) + "\n";
  if (r.contains("pipeline"))
    out += fmt::format("draw with it: danqing generate \"...\" -m {}\n",
                       own_folder ? where : r["model"].get<std::string>());
  return out;
}

Result<int> run(Options& o) {
  PullSettings& s = o.pull;
  s.dir = o.dir;
  DQ_TRY(s.bytes_per_second, bytes_of("--limit-rate", o.limit));
  DQ_TRY(s.segment, bytes_of("--segment", o.segment));
  if (!(s.retry_seconds >= 0 && s.retry_seconds <= 3600) || !(s.stall_seconds >= 1 && s.stall_seconds <= 86400))
    return usage_error("[pull] expected --retry-wait within 0 and 3600 and --stall within 1 and 86400 seconds");
  if (!s.quant.empty()) {
    DQ_TRY(const DType type, parse_type(s.quant, TensorSource::Format::gguf, "--quant"));
    s.quant = std::string(name(type));
    DQ_TRY(const std::shared_ptr<Device> cpu, Device::open("cpu", {s.threads}));
    s.threads = cpu->threads();
  }
  catch_interrupts();
  TransferView view(ProgressView::mode_for(o.quiet), s.quant.empty() ? "pull" : "pull and quantise");
  s.progress = [&](const PullState& p) { view.show(p.done, p.total, p.file, p.moved); };
  s.say = [&](const std::string& line) { view.say(line); };
  s.cancelled = [] { return interrupted(); };
  const auto report = pull(s);
  view.clear();
  if (!report) return report.error();
  const std::string text = o.json ? dump_json(*report, 2) + "\n" : report_text(*report, s.dry_run, !s.dir.empty());
  if (!o.quiet || o.json) std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace

void add_pull(CLI::App& app, Command& command) {
  auto o = std::make_shared<Options>();
  PullSettings& s = o->pull;
  CLI::App* c = app.add_subcommand("pull", "Fetch a model: resumable, checked, quantised on the way if wanted");
  c->footer(
      "Examples:\n"
      "  danqing pull baidu/ERNIE-Image-Turbo                    from Hugging Face, or HF_ENDPOINT\n"
      "  danqing pull baidu/ERNIE-Image-Turbo --quant q4_K       the 15 GB never lie on the disk\n"
      "  danqing pull owner/name --hub modelscope --exclude 'pe/' --exclude 'pe_tokenizer/'\n"
      "  danqing pull owner/name@v1.1 --include '*Q4_K_M*' --limit-rate 5MiB\n"
      "  danqing pull https://example.org/a.safetensors#sha256=0f3c... --name my-model\n"
      "An interrupted pull goes on where it was when the same command runs again. Tokens come from HF_TOKEN and\n"
      "MODELSCOPE_API_TOKEN, proxies from https_proxy, http_proxy and no_proxy.\n"
      "Exit codes: 0 here and checked; 1 network or disk (run it again); 2 wrong usage; 3 not there, not allowed, a\n"
      "wrong hash or length, a web page in place of a file; 130 cancelled.");
  c->add_option("what", s.what, "owner/name, owner/name@revision, or addresses of files")->required();
  c->add_option("--hub", s.hub, "huggingface or modelscope")->capture_default_str();
  c->add_option("--dir", o->dir, "Folder of models (default: $DANQING_MODELS, else ~/.local/share/danqing/models)");
  c->add_option("--name", s.name, "Name in that folder (default: owner/name, or the first file's name)");
  c->add_option("--include", s.filters.include, "Only files that match: * ? [] on the path or the name, 'folder/'")
      ->allow_extra_args(false);
  c->add_option("--exclude", s.filters.exclude, "Leave out files that match")->allow_extra_args(false);
  c->add_option("--variant", s.filters.variant, "fp16: NAME.fp16.safetensors in place of NAME.safetensors");
  c->add_option("--quant", s.quant,
                "q4_K, q5_K, q6_K, q8_0, ...: convert to GGUF while it arrives, as `danqing convert`");
  c->add_option("--limit-rate", o->limit, "At most so many bytes a second: 20MiB");
  c->add_option("--connections", s.connections, "Parts of a file that are fetched at once")
      ->check(CLI::Range(1, 32))
      ->capture_default_str();
  c->add_option("--segment", o->segment, "Size of such a part (default: by the file, 8 to 128 MiB)");
  c->add_option("--retries", s.retries, "Tries in a row that bring nothing before it is given up")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
  c->add_option("--retry-wait", s.retry_seconds, "Seconds before the second try; doubles up to 60")
      ->capture_default_str();
  c->add_option("--stall", s.stall_seconds, "Seconds without a byte after which a connection is taken for dead")
      ->capture_default_str();
  c->add_option("--threads", s.threads, "CPU threads for --quant (default: the physical cores of this process)")
      ->check(CLI::Range(0, 1024));
  s.threads = 0;
  c->add_flag("--verify", s.verify, "Hash what is here already instead of trusting size and time");
  c->add_flag("--dry-run", s.dry_run, "Only list what would be fetched and what would be skipped");
  c->add_flag("--json", o->json, "Print the report as JSON");
  c->add_flag("--quiet", o->quiet, "No progress and no report");
  c->callback([o, &command] { command = [o] { return run(*o); }; });
}

}  // namespace danqing::app
