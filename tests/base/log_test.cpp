#include "base/log.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace danqing {
namespace {

TEST(Log, SinkTakesWhatTheLevelLetsThrough) {
  std::vector<std::string> lines;
  log::set_sink([&](log::Level level, std::string_view text) {
    lines.push_back(std::to_string(static_cast<int>(level)) + " " + std::string(text));
  });
  log::set_level(log::Level::info);
  log::debug("too fine");
  log::info("of {} parts", 2);
  log::write(log::Level::error, "{not a format}");
  log::set_level(log::Level::warning);
  log::info("quiet again");
  log::set_sink({});
  log::warn("to standard error");
  EXPECT_EQ(lines, (std::vector<std::string>{"1 of 2 parts", "3 {not a format}"}));
}

}  // namespace
}  // namespace danqing
