#include "bench/bandwidth.h"

#include <gmock/gmock.h>

#include <fstream>

#include "device/host.h"
#include "testing/testing.h"

namespace danqing::app {
namespace {

using ::testing::HasSubstr;

TEST(Bandwidth, MemoryIsCopied) {
  const double all = memcpy_bandwidth({}, 8 << 20, 2);
  EXPECT_GT(all, 1e7);  // a machine that copies 10 MB/s is none
  EXPECT_LT(all, 1e14);
  EXPECT_GT(memcpy_bandwidth({host::allowed_cpus().front()}, 1 << 20, 1), 1e7);
}

TEST(Bandwidth, DiskReadsTheWholeFileOrSaysWhy) {
  const testing::TempDir dir;
  const std::string text(3'000'001, 'x');  // ends within a block
  std::ofstream(dir / "file", std::ios::binary) << text;
  DQ_ASSERT_OK(const BandwidthRow row, disk_bandwidth(dir / "file", size_t{1} << 30));
  EXPECT_GT(row.bytes_per_second, 0);
  EXPECT_THAT(row.note, ::testing::AnyOf(HasSubstr("O_DIRECT"), HasSubstr("page cache dropped before")));
  EXPECT_THAT(row.note, HasSubstr("2.86 MiB of file"));
  std::ofstream(dir / "empty");
  EXPECT_THAT(disk_bandwidth(dir / "empty", 1 << 20).error().message, HasSubstr("with nothing"));
  EXPECT_EQ(disk_bandwidth(dir / "nowhere", 1 << 20).error().code, ErrorCode::bad_input);
  EXPECT_EQ(disk_bandwidth(dir.path(), 1 << 20).error().code, ErrorCode::bad_input);
}

TEST(Bandwidth, WhatItMeansForStreaming) {
  const std::vector<BandwidthRow> card{{"memcpy", "", 20e9},
                                       {"host to device, pageable", "", 8e9},
                                       {"host to device, pinned", "", 16e9},
                                       {"disk read", "", 2e9}};
  EXPECT_EQ(streaming_sentence(card, 16e9),
            "Streaming: 14.90 GiB of weights a pass takes 1.000 s when it is streamed from host memory to the card, "
            "8.000 s when it comes "
            "from this disk.");
  EXPECT_EQ(streaming_sentence({{"memcpy node 0", "", 10e9}, {"memcpy node 1", "", 20e9}}, 0),
            "Streaming: each GB of weights takes 0.050 s when it is copied once in host memory.");
  EXPECT_EQ(streaming_sentence({{"host to device, pinned", "none", 0}}, 0), "");
}

TEST(Bandwidth, OnlyWhatAppliesToTheProcessor) {
  DQ_ASSERT_OK(const std::shared_ptr<Device> cpu, Device::open("cpu", {}));
  BandwidthOptions o;
  o.bytes = 1 << 20;
  o.repetitions = 1;
  std::vector<std::string> ids;
  measure_bandwidth(*cpu, o, [&](const BandwidthRow& r) {
    ids.push_back(r.id);
    EXPECT_GT(r.bytes_per_second, 0) << r.note;
  });
  ASSERT_FALSE(ids.empty());
  for (const std::string& id : ids) EXPECT_THAT(id, HasSubstr("memcpy"));
}

}  // namespace
}  // namespace danqing::app
