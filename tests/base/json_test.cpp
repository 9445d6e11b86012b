// JSON from outside: hostile text, wrong types, values that don't fit.
#include "base/json.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/file.h"
#include "testing/testing.h"

namespace danqing {
namespace {

TEST(ParseJson, HostileTexts) {
  const std::vector<std::string> bad = {"",
                                        "{",
                                        "}",
                                        "[1,]",
                                        "{\"a\"}",
                                        "{\"a\":}",
                                        "nul",
                                        "'a'",
                                        "{a:1}",
                                        "1 2",
                                        "\"\\ud800\"",
                                        "\"\xff\"",
                                        "\"a\nb\"",
                                        "NaN",
                                        "Infinity",
                                        "1e999",
                                        "01",
                                        "+1",
                                        "\xef\xbb",
                                        std::string(200000, '['),
                                        std::string(200000, '{'),
                                        "\"" + std::string(1 << 20, 'x')};
  for (const std::string& text : bad) {
    const auto r = parse_json(text, "some/config.json");
    ASSERT_FALSE(r.ok()) << text.substr(0, 40);
    EXPECT_EQ(r.error().code, ErrorCode::bad_input);
    EXPECT_NE(r.error().message.find("some/config.json"), std::string::npos);
    EXPECT_EQ(r.error().message.find('\n'), std::string::npos) << r.error().message;
    EXPECT_LT(r.error().message.size(), 400u);
  }
}

TEST(ParseJson, DepthIsCountedOutsideStrings) {
  EXPECT_TRUE(parse_json(std::string(128, '[') + std::string(128, ']'), "x").ok());
  EXPECT_FALSE(parse_json(std::string(129, '[') + std::string(129, ']'), "x").ok());
  EXPECT_TRUE(parse_json("\"" + std::string(1000, '[') + "\"", "x").ok());
  EXPECT_TRUE(parse_json("\"\\\"" + std::string(1000, '[') + "\"", "x").ok());
}

TEST(ReadJson, FilesThatAreNone) {
  const testing::TempDir dir;
  EXPECT_FALSE(read_json(dir / "absent.json").ok());
  EXPECT_FALSE(read_json(dir.path()).ok());
  EXPECT_FALSE(read_json("/dev/zero").ok());
}

TEST(ReadJson, KeysOnlyOnce) {
  const testing::TempDir dir;
  const auto unique = [&](std::string_view text) {
    EXPECT_TRUE(write_file(dir / "x.json", text).ok());
    return read_json_unique(dir / "x.json");
  };
  DQ_ASSERT_OK(const Json good, unique(R"({"a":{"b":1},"c":{"b":[{"b":1},{"b":2}]}})"));
  EXPECT_EQ(good["c"]["b"][1]["b"], 2);
  for (const char* bad : {R"({"a":1,"a":2})", R"({"x":{"a":1,"a":1}})", R"([{"a":1},{"a":1,"b":2,"a":3}])"}) {
    const auto r = unique(bad);
    ASSERT_FALSE(r.ok()) << bad;
    EXPECT_NE(r.error().message.find("expected key 'a' once"), std::string::npos) << r.error().message;
  }
  for (const char* bad : {"", "{", "[[", "{\"a\":1"}) EXPECT_FALSE(unique(bad).ok()) << bad;
}

TEST(DumpJson, InvalidUtf8DoesNotThrow) { EXPECT_EQ(dump_json(Json("a\xff")), "\"a\xef\xbf\xbd\""); }

// What a config may say for a field, and what each reader makes of it.
TEST(JsonObjectFields, HostileValues) {
  struct Row {
    const char* value;
    bool integer, number, boolean, string, integers, object;
  };
  const std::vector<Row> rows = {
      {"5", true, true, false, false, false, false},
      {"-5", true, true, false, false, false, false},
      {"5.0", false, true, false, false, false, false},
      {"1e400", false, false, false, false, false, false},
      {"9223372036854775807", true, true, false, false, false, false},
      {"9223372036854775808", false, true, false, false, false, false},
      {"18446744073709551615", false, true, false, false, false, false},
      {"-9223372036854775808", true, true, false, false, false, false},
      {"99999999999999999999999", false, true, false, false, false, false},
      {"\"5\"", false, false, false, true, false, false},
      {"true", false, false, true, false, false, false},
      {"null", false, false, false, false, false, false},
      {"[]", false, false, false, false, true, false},
      {"[1,2]", false, false, false, false, true, false},
      {"[1,2.5]", false, false, false, false, false, false},
      {"[1,null]", false, false, false, false, false, false},
      {"[18446744073709551615]", false, false, false, false, false, false},
      {"[[1]]", false, false, false, false, false, false},
      {"{}", false, false, false, false, false, true},
      {"{\"a\":[]}", false, false, false, false, false, true},
  };
  for (const Row& r : rows) {
    SCOPED_TRACE(r.value);
    const auto json = parse_json(std::string("{\"f\":") + r.value + "}", "config.json");
    if (!json.ok()) {  // 1e400 is refused by the parser already
      EXPECT_STREQ(r.value, "1e400");
      continue;
    }
    DQ_ASSERT_OK(const JsonObject o, JsonObject::of(*json, "config.json"));
    const auto check = [&](const auto& result, bool want) {
      EXPECT_EQ(result.ok(), want);
      if (result.ok()) return;
      EXPECT_EQ(result.error().code, ErrorCode::bad_input);
      EXPECT_NE(result.error().message.find("config.json"), std::string::npos);
      EXPECT_NE(result.error().message.find("'f'"), std::string::npos);
    };
    check(o.integer("f"), r.integer);
    check(o.number("f"), r.number);
    check(o.boolean("f"), r.boolean);
    check(o.string("f"), r.string);
    check(o.integers("f"), r.integers);
    check(o.object("f"), r.object);
  }
}

TEST(JsonObjectFields, FallbacksServeAbsentAndNullOnly) {
  const Json json = {{"null", nullptr}, {"text", "x"}};
  DQ_ASSERT_OK(const JsonObject o, JsonObject::of(json, "c.json"));
  EXPECT_FALSE(o.has("null"));
  EXPECT_TRUE(o.has("text"));
  for (const char* key : {"null", "absent"}) {
    EXPECT_EQ(*o.integer(key, 7), 7);
    EXPECT_EQ(*o.number(key, 0.5), 0.5);
    EXPECT_EQ(*o.boolean(key, true), true);
    EXPECT_EQ(*o.string(key, "d"), "d");
    EXPECT_EQ(*o.integers(key, std::vector<int64_t>{1}), std::vector<int64_t>{1});
    EXPECT_FALSE(o.integer(key).ok());
  }
  EXPECT_FALSE(o.integer("text", 7).ok());  // a wrong type is never covered up
  EXPECT_FALSE(o.boolean("text", true).ok());
}

TEST(JsonObjectFields, Bounds) {
  const Json json = {{"n", 5}};
  DQ_ASSERT_OK(const JsonObject o, JsonObject::of(json, "c.json"));
  EXPECT_TRUE(o.integer_in("n", 5, 5).ok());
  EXPECT_FALSE(o.integer_in("n", 6, 9).ok());
  EXPECT_FALSE(o.integer_in("n", 0, 4).ok());
  EXPECT_FALSE(o.integer_in("absent", 0, 4).ok());
  EXPECT_FALSE(JsonObject::of(Json::array(), "c.json").ok());
}

TEST(JsonObjectFields, ErrorsShowLittleOfTheValue) {
  const Json json = {{"f", std::string(1 << 20, '\n')}};
  DQ_ASSERT_OK(const JsonObject o, JsonObject::of(json, "c.json"));
  const auto r = o.integer("f");
  ASSERT_FALSE(r.ok());
  EXPECT_LT(r.error().message.size(), 200u);
  EXPECT_EQ(r.error().message.find('\n'), std::string::npos);
}

}  // namespace
}  // namespace danqing
