// The program's log: spdlog behind four functions, to stderr. Results go to stdout, never through here.
#pragma once
#include <fmt/format.h>

#include <functional>
#include <string_view>

namespace danqing::log {

enum class Level { debug, info, warning, error, off };
void set_level(Level level);
void write(Level level, std::string_view text);

/// Takes the lines in place of standard error, from any thread; only those that the level lets through. Set before
/// threads are started. An empty one gives them back to standard error.
using Sink = std::function<void(Level, std::string_view)>;
void set_sink(Sink sink);

template <class... A>
void debug(fmt::format_string<A...> f, A&&... a) {
  write(Level::debug, fmt::format(f, std::forward<A>(a)...));
}
template <class... A>
void info(fmt::format_string<A...> f, A&&... a) {
  write(Level::info, fmt::format(f, std::forward<A>(a)...));
}
template <class... A>
void warn(fmt::format_string<A...> f, A&&... a) {
  write(Level::warning, fmt::format(f, std::forward<A>(a)...));
}

}  // namespace danqing::log
