// The program's log: spdlog behind four functions, to stderr. Results go to stdout, never through here.
#pragma once
#include <fmt/format.h>

#include <string_view>

namespace danqing::log {

enum class Level { debug, info, warning, error, off };
void set_level(Level level);
void write(Level level, std::string_view text);

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
