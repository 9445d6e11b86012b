#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

namespace danqing::log {
namespace {

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto l = std::make_shared<spdlog::logger>("danqing", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    l->set_pattern("danqing: %^%l%$: %v");
    l->set_level(spdlog::level::warn);
    return l;
  }();
  return *instance;
}

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::debug: return spdlog::level::debug;
    case Level::info: return spdlog::level::info;
    case Level::warning: return spdlog::level::warn;
    case Level::error: return spdlog::level::err;
    case Level::off: break;
  }
  return spdlog::level::off;
}

Sink& sink() {
  static Sink instance;
  return instance;
}

}  // namespace

void set_level(Level level) { logger().set_level(to_spdlog(level)); }
void set_sink(Sink s) { sink() = std::move(s); }
void write(Level level, std::string_view text) {
  if (!sink()) return logger().log(to_spdlog(level), "{}", text);
  if (logger().should_log(to_spdlog(level))) sink()(level, text);
}

}  // namespace danqing::log
