#include "base/units.h"

#include <gtest/gtest.h>

namespace danqing {
namespace {

TEST(Units, FormatBytes) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.00 KiB");
  EXPECT_EQ(format_bytes(16060000000), "14.96 GiB");
  EXPECT_EQ(format_bytes(UINT64_MAX), "16777216.00 TiB");
}

TEST(Units, ParseBytes) {
  const std::pair<const char*, uint64_t> good[] = {{"0", 0},
                                                   {"1000000", 1000000},
                                                   {"10B", 10},
                                                   {"1K", 1024},
                                                   {"1kb", 1024},
                                                   {"2 MiB", 2u << 20},
                                                   {"32GiB", uint64_t{32} << 30},
                                                   {"512M", 512u << 20},
                                                   {"0.5g", 512u << 20},
                                                   {"1T", uint64_t{1} << 40}};
  for (const auto& [text, want] : good) {
    const auto r = parse_bytes(text);
    ASSERT_TRUE(r.ok()) << text;
    EXPECT_EQ(*r, want) << text;
  }
  for (const char* bad : {"", "G", "GiB", "-1", "-1G", "1X", "1 Gigabyte", "nan", "inf", "infG", "1e30", "9999999T",
                          "1G1", "1,5G", "0x10", " 1"}) {
    const auto r = parse_bytes(bad);
    ASSERT_FALSE(r.ok()) << bad << " gave " << *r;
    EXPECT_EQ(r.error().code, ErrorCode::usage);
  }
}

TEST(Units, ParseSize) {
  for (const char* good : {"1024x768", "1024X768", "1024*768"}) {
    const auto r = parse_size(good);
    ASSERT_TRUE(r.ok()) << good;
    EXPECT_EQ(*r, (std::pair{1024, 768}));
  }
  for (const char* bad : {"", "1024", "x", "1024x", "x768", "0x1", "1x0", "-1x5", "1x-5", "1024x768x3", "99999999999x1",
                          "1024 x 768", "ax b"})
    EXPECT_FALSE(parse_size(bad).ok()) << bad;
}

TEST(Units, FormatSeconds) {
  EXPECT_EQ(format_seconds(0.42), "0.42 s");
  EXPECT_EQ(format_seconds(59.99), "59.99 s");
  EXPECT_EQ(format_seconds(65), "1:05");
  EXPECT_EQ(format_seconds(3599.6), "1:00:00");
  EXPECT_EQ(format_seconds(7390), "2:03:10");
  EXPECT_EQ(format_seconds(-1), "?");
  EXPECT_EQ(format_seconds(0.0 / 0.0), "?");
  EXPECT_EQ(format_seconds(1e300), "?");
}

}  // namespace
}  // namespace danqing
