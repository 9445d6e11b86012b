#include "server/ops/ecs_log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <chrono>
#include <ctime>

#include "base/text.h"

namespace danqing::server {
namespace {

bool as_json = true;

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto l = std::make_shared<spdlog::logger>("serve", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    l->set_pattern("%v");
    l->flush_on(spdlog::level::debug);
    return l;
  }();
  return *instance;
}

spdlog::level::level_enum level_of(log::Level l) {
  switch (l) {
    case log::Level::debug: return spdlog::level::debug;
    case log::Level::info: return spdlog::level::info;
    case log::Level::warning: return spdlog::level::warn;
    case log::Level::error: return spdlog::level::err;
    case log::Level::off: break;
  }
  return spdlog::level::off;
}

/// Of this process, for its life: where several processes write one log.
const std::string& host_name() {
  static const std::string name = [] {
    char text[256] = "";
    return gethostname(text, sizeof text - 1) == 0 ? std::string(text) : std::string();
  }();
  return name;
}

std::string timestamp() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
  const std::time_t seconds = static_cast<std::time_t>(ms / 1000);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[40];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
  return fmt::format("{}.{:03}Z", text, ms % 1000);
}

}  // namespace

void configure_log(bool json, log::Level level) {
  as_json = json;
  logger().set_level(level_of(level));
  // What the engine says goes the same way, so that every line on stderr is one of ours.
  log::set_level(level);
  log::set_sink([](log::Level l, std::string_view text) { log_event(l, text, {{"log.logger", "danqing.engine"}}); });
}

void log_event(log::Level level, std::string_view message, const Json& fields) {
  const auto l = level_of(level);
  if (!logger().should_log(l)) return;
  const auto level_text = spdlog::level::to_string_view(l);
  const std::string level_name(level_text.data(), level_text.size());
  if (as_json) {
    Json j = fields;
    j["@timestamp"] = timestamp();
    j["log.level"] = level_name;
    j["message"] = std::string(message);
    j["ecs.version"] = "8.17.0";
    j["service.name"] = "danqing";
    j["service.version"] = DANQING_VERSION;
    j["event.dataset"] = "danqing";
    j["host.name"] = host_name();
    j["process.pid"] = static_cast<int64_t>(getpid());
    logger().log(l, "{}", dump_json(j));
  } else {
    std::string line = timestamp() + " " + level_name + " " + one_line(message, 500);
    for (const auto& [key, value] : fields.items()) line += fmt::format(" {}={}", key, dump_json(value));
    logger().log(l, "{}", line);
  }
}

}  // namespace danqing::server
