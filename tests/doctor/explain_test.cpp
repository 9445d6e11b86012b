#include "doctor/explain.h"

#include <gmock/gmock.h>

#include <fstream>
#include <map>
#include <set>

#include "base/text.h"
#include "doctor/report.h"

namespace danqing::doctor {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

/// id and log, from logs.txt: "== id" and the lines up to the next.
std::vector<std::pair<std::string, std::string>> logs() {
  std::vector<std::pair<std::string, std::string>> all;
  std::ifstream in(DANQING_DOCTOR_LOGS);
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("== ", 0) == 0)
      all.emplace_back(line.substr(3), "");
    else if (!all.empty())
      all.back().second += line + "\n";
  }
  return all;
}

TEST(Explain, TheTableIsWhole) {
  ASSERT_GE(known_errors().size(), 30u);
  std::set<std::string> ids;
  for (const KnownError& e : known_errors()) {
    EXPECT_TRUE(ids.insert(e.id).second) << e.id;
    EXPECT_EQ(e.source.rfind("https://", 0), 0u) << e.id;
    EXPECT_GE(e.steps.size(), 2u) << e.id;
    for (const Text* t : {&e.title, &e.cause}) {
      EXPECT_FALSE(t->en.empty() || t->zh.empty()) << e.id;
      EXPECT_NE(t->en, t->zh) << e.id;
      EXPECT_EQ(valid_utf8_prefix(t->zh), t->zh.size()) << e.id;
    }
    for (const Text& t : e.steps) EXPECT_FALSE(t.en.empty() || t.zh.empty()) << e.id;
    ASSERT_FALSE(e.match.empty()) << e.id;
    for (const auto& all : e.match) {
      ASSERT_FALSE(all.empty()) << e.id;
      for (const std::string& part : all) {
        EXPECT_GE(part.size(), 3u) << e.id;
        EXPECT_EQ(std::count_if(part.begin(), part.end(), [](char c) { return c >= 'A' && c <= 'Z'; }), 0)
            << e.id << ": " << part;
      }
    }
  }
}

TEST(Explain, EveryErrorFromALogOfIt) {
  std::map<std::string, int> seen;
  for (const auto& [id, log] : logs()) {
    const auto found = explain(log);
    ASSERT_THAT(found, ::testing::Not(IsEmpty())) << id;
    EXPECT_EQ(found[0].error->id, id) << log;
    EXPECT_THAT(log, HasSubstr(found[0].line.substr(0, 30))) << id;
    ++seen[id];
  }
  for (const KnownError& e : known_errors()) EXPECT_GE(seen[e.id], 1) << e.id << " has no log in tests/doctor/logs.txt";
}

TEST(Explain, InALongLogAndByItsName) {
  const std::string noise(300000, 'x');
  const auto found = explain(noise + "\nthen HIPERRORNOBINARYFORGPU happened\n" + noise);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].error->id, "hip-no-binary");
  EXPECT_EQ(found[0].line, "then HIPERRORNOBINARYFORGPU happened");
  EXPECT_EQ(explain("pcie-errors").at(0).error->id, "pcie-errors");
}

TEST(Explain, WhatIsNotKnown) {
  EXPECT_THAT(explain(""), IsEmpty());
  EXPECT_THAT(explain("the kettle is boiling"), IsEmpty());
  EXPECT_THAT(explain(std::string(5 << 20, 'a') + "hipErrorNoBinaryForGpu"), IsEmpty()) << "beyond the first 4 MiB";
  EXPECT_THAT(explain("danqing: [size] expected multiples of 16, got 100x128"), IsEmpty());
  EXPECT_THAT(explain(std::string("\0\xff\x1b[2J", 6)), IsEmpty());
}

TEST(Explain, SeveralAtOnceBestFirst) {
  const auto found = explain(
      "kernel: VRAM is lost due to GPU reset!\nvk::Queue::submit: ErrorDeviceLost\nring gfx_0.0.0 timeout\n[gfxhub] "
      "page fault",
      3);
  ASSERT_THAT(found, SizeIs(3));
  EXPECT_EQ(found[0].error->id, "amdgpu-reset");
}

TEST(Explain, LinesAreSafeToPrint) {
  const auto found = explain("\x1b[31mErrorDeviceLost\x07\n");
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].line.find('\x1b'), std::string::npos);
}

TEST(Explain, OurOwnErrorsOfADevice) {
  EXPECT_THAT(
      likely_cause({ErrorCode::device_lost,
                    "[graph] expected vulkan0 (RX 7900) to compute, got a failure of the device or its driver"}),
      HasSubstr("danqing doctor --explain vulkan-device-lost"));
  EXPECT_THAT(
      likely_cause(
          {ErrorCode::does_not_fit,
           "[memory] expected 3 GiB free on vulkan0 for the weights, got a refusal from its driver (1 GiB in use)"}),
      HasSubstr("--explain driver-refusal"));
  EXPECT_THAT(
      likely_cause({ErrorCode::failed,
                    "[graph] expected vulkan0 to compute MUL_MAT of q5_1 [1], got no support for it in ggml 0.20"},
                   Language::chinese),
      HasSubstr("可能的原因"));
  EXPECT_EQ(likely_cause({ErrorCode::does_not_fit, "[memory] expected 3 GiB free on cpu for the weights, got 1 GiB"}),
            "");
  EXPECT_EQ(likely_cause({ErrorCode::usage, "[prompt] hipErrorNoBinaryForGpu"}), "")
      << "what a user wrote is no error of a device";
}

TEST(Explain, Report) {
  const std::string en = report_text(explain("hipErrorNoBinaryForGpu"), Language::english);
  EXPECT_THAT(en, HasSubstr("hip-no-binary: the program has no kernels"));
  EXPECT_THAT(en, HasSubstr("  1. danqing doctor"));
  EXPECT_THAT(en, HasSubstr("source: https://"));
  EXPECT_THAT(report_text(explain("hipErrorNoBinaryForGpu"), Language::chinese), HasSubstr("原因：HIP 程序"));
  const Json j = to_json(explain("hipErrorNoBinaryForGpu"));
  EXPECT_EQ(j[0]["id"], "hip-no-binary");
  EXPECT_EQ(j[0]["steps"]["en"].size(), j[0]["steps"]["zh"].size());
  EXPECT_THAT(report_text(std::vector<Explanation>{}, Language::english), HasSubstr("No known error"));
}

TEST(Language, Words) {
  EXPECT_EQ(*parse_language("zh"), Language::chinese);
  EXPECT_EQ(*parse_language("en"), Language::english);
  EXPECT_EQ(parse_language("fr").error().code, ErrorCode::usage);
}

}  // namespace
}  // namespace danqing::doctor
