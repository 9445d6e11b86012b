#include "device/device.h"

#include <gmock/gmock.h>

#include "testing/testing.h"

namespace danqing {
namespace {

using ::testing::HasSubstr;

TEST(Devices, TheCpuIsAlwaysThere) {
  const auto all = list_devices();
  const auto cpu = std::find_if(all.begin(), all.end(), [](const DeviceInfo& d) { return d.name == "cpu"; });
  ASSERT_NE(cpu, all.end());
  EXPECT_EQ(cpu->backend, "CPU");
  EXPECT_FALSE(cpu->description.empty());
  EXPECT_GT(cpu->memory_total, 0u);
  EXPECT_EQ(ggml_version_text().substr(0, 2), "0.");
}

TEST(Devices, UnknownNamesListTheKnown) {
  for (const char* name : {"vulkan77", "CPU", "", "cpu0"}) {
    const auto d = Device::open(name);
    ASSERT_FALSE(d.ok()) << name;
    EXPECT_EQ(d.error().code, ErrorCode::usage);
    EXPECT_THAT(d.error().message, HasSubstr("auto, "));
    EXPECT_THAT(d.error().message, HasSubstr("cpu"));
    EXPECT_THAT(d.error().message, HasSubstr("\"" + std::string(name) + "\""));
  }
}

TEST(Devices, ThreadsAreChecked) {
  for (int threads : {-1, 513, 1 << 30}) {
    const auto d = Device::open("cpu", {threads});
    ASSERT_FALSE(d.ok()) << threads;
    EXPECT_EQ(d.error().code, ErrorCode::usage);
  }
  DQ_ASSERT_OK(const auto three, Device::open("cpu", {3}));
  EXPECT_EQ(three->threads(), 3);
  DQ_ASSERT_OK(const auto standard, Device::open("auto"));
  EXPECT_GE(standard->threads(), 1);
}

TEST(Devices, AllocationsAreCounted) {
  DQ_ASSERT_OK(auto d, Device::open("cpu"));
  EXPECT_EQ(d->allocated(), 0u);
  {
    DQ_ASSERT_OK(auto a, d->allocate(1000, "test"));
    DQ_ASSERT_OK(auto b, d->allocate(5000, "test"));
    EXPECT_GE(d->allocated(), 6000u);
  }
  EXPECT_EQ(d->allocated(), 0u);
  EXPECT_GE(d->peak_allocated(), 6000u);
}

TEST(Devices, TooMuchIsAnErrorInWords) {
  DQ_ASSERT_OK(auto d, Device::open("cpu"));
  const auto huge = d->allocate(size_t{1} << 50, "weights");
  ASSERT_FALSE(huge.ok());
  EXPECT_EQ(huge.error().code, ErrorCode::does_not_fit);
  EXPECT_THAT(huge.error().message, HasSubstr("1024.00 TiB"));
  EXPECT_THAT(huge.error().message, HasSubstr("weights"));
  d->set_limit(10000);
  DQ_ASSERT_OK(auto a, d->allocate(8000, "test"));
  const auto over = d->allocate(2001, "test");
  ASSERT_FALSE(over.ok());
  EXPECT_EQ(over.error().code, ErrorCode::does_not_fit);
  a.reset();
  EXPECT_TRUE(d->allocate(2001, "test").ok());
}

TEST(Devices, AChosenAllocationFails) {
  DQ_ASSERT_OK(auto d, Device::open("cpu"));
  d->fail_allocation(2);
  EXPECT_TRUE(d->allocate(100, "test").ok());
  EXPECT_FALSE(d->allocate(100, "test").ok());
  EXPECT_TRUE(d->allocate(100, "test").ok());
}

TEST(Devices, GgmlSaysNothingOnStderr) {
  ::testing::internal::CaptureStderr();
  {
    DQ_ASSERT_OK(auto d, Device::open("cpu"));
    EXPECT_FALSE(ggml_backend_load("no-such-backend.so"));  // ggml reports this as an error
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace danqing
