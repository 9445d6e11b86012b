// danqing monitor: temperature, load, memory, power of the cards and the host, now and over time.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "base/try.h"
#include "commands.h"
#include "common/interrupt.h"
#include "common/streams.h"
#include "monitor/sampler.h"
#include "panel/terminal.h"
#include "panel/text.h"

namespace danqing::app {
namespace {

struct Options {
  bool once = false, json = false;
  double interval = 2;
  int count = 0;
  std::string root, nvml;
};

constexpr size_t kHistory = 600;

/// Waits in pieces, so that Ctrl-C ends it at once.
void wait(double seconds) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!interrupted() && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::min<std::chrono::duration<double>>(std::chrono::milliseconds(50),
                                                                        until - std::chrono::steady_clock::now()));
}

int show_panel(monitor::Sampler& sampler, const Options& o) {
  Terminal terminal;
  std::deque<monitor::Snapshot> history;
  PanelStyle style;
  const char* no_colour = std::getenv("NO_COLOR");
  style.colour = !(no_colour && *no_colour);
  style.unicode = Terminal::unicode();
  for (int n = 0; !interrupted() && (o.count == 0 || n < o.count); ++n) {
    history.push_back(sampler.sample());
    if (history.size() > kHistory) history.pop_front();
    double left = o.interval;
    while (left > 0 && !interrupted()) {  // drawn anew within the interval when the window's size changes
      std::tie(style.width, style.height) = Terminal::size();
      terminal.draw(panel_text(history, style));
      const double part = std::min(left, 0.5);
      const char key = terminal.key(part);
      if (key == 'q' || key == 'Q') return 0;
      left -= part;
    }
  }
  return 0;
}

Result<int> run(const Options& o) {
  if (!(o.interval >= 0.1))  // the range check lets NaN pass
    return usage_error("[--interval] expected 0.1 to 86400 seconds, got {}", o.interval);
  monitor::Options where;
  if (!o.root.empty()) {
    std::error_code ec;
    if (!std::filesystem::is_directory(o.root, ec))
      return bad_input("[monitor] expected a directory with sys/ and proc/ in --sysfs-root, got '{}'", o.root);
    where.root = o.root;
  }
  where.nvml = o.nvml;
  catch_interrupts();
  monitor::Sampler sampler(where);
  if (!o.once && !o.json && Terminal::on_terminal()) return show_panel(sampler, o);
  PanelStyle style;
  style.unicode = Terminal::unicode();
  if (o.once) {
    (void)sampler.sample();  // the load of the CPU needs two
    wait(std::min(o.interval, 0.2));
  }
  for (int n = 0; !interrupted(); ++n) {
    const monitor::Snapshot s = sampler.sample();
    const std::string text = o.json   ? dump_json(to_json(s), o.once ? 2 : -1) + "\n"
                             : o.once ? snapshot_text(s, style)
                                      : snapshot_lines(s, style.unicode);
    std::fputs(text.c_str(), stdout);
    if (!flush_output()) return fail(ErrorCode::failed, "[output] standard output cannot be written");
    if (o.once || n + 1 == o.count) break;
    wait(o.interval);
  }
  return 0;
}

}  // namespace

void add_monitor(CLI::App& app, Command& command) {
  auto o = std::make_shared<Options>();
  CLI::App* c = app.add_subcommand("monitor", "Show temperature, load, memory, power and clocks of the cards");
  c->footer(
      "A panel with graphs on a terminal (q or Ctrl-C ends it); one line a card elsewhere. AMD cards are read from\n"
      "sysfs, NVIDIA cards through the driver's NVML; no other program is needed.\n"
      "Examples:\n"
      "  danqing monitor                        the panel\n"
      "  danqing monitor --once --json          everything once, for programs\n"
      "  danqing monitor --interval 10 >> log   a line a card every ten seconds");
  c->add_flag("--once", o->once, "Print everything once and end");
  c->add_flag("--json", o->json, "Print JSON, one object a line (with --once: indented)");
  c->add_option("--interval", o->interval, "Seconds between two readings")
      ->check(CLI::Range(0.1, 86400.0))
      ->capture_default_str();
  c->add_option("--count", o->count, "End after so many readings (0: never)")->check(CLI::Range(0, 1000000000));
  c->add_option("--sysfs-root", o->root, "Read DIR/sys and DIR/proc instead of /sys and /proc");
  c->add_option("--nvml", o->nvml, "NVIDIA's management library (default: libnvidia-ml.so.1 where it is)");
  c->callback([o, &command] { command = [o] { return run(*o); }; });
}

}  // namespace danqing::app
