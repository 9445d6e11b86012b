// Memory that no buffer holds is counted all the same.
#include <gmock/gmock.h>

#include "device/device.h"
#include "testing/testing.h"

namespace danqing {
namespace {

using ::testing::HasSubstr;

TEST(Charge, IsCountedWhileItLives) {
  DQ_ASSERT_OK(const auto d, Device::open("cpu"));
  {
    DQ_ASSERT_OK(Device::Charge a, d->charge(1000, "test"));
    DQ_ASSERT_OK(Device::Charge b, d->charge(500, "test"));
    EXPECT_EQ(d->allocated(), 1500u);
    Device::Charge c = std::move(b);
    EXPECT_EQ(b.bytes(), 0u);
    EXPECT_EQ(c.bytes(), 500u);
    EXPECT_EQ(d->allocated(), 1500u);
    c.shrink(600);
    EXPECT_EQ(d->allocated(), 1500u);
    c.shrink(100);
    EXPECT_EQ(d->allocated(), 1100u);
    a = std::move(c);
    EXPECT_EQ(d->allocated(), 100u);
    a = {};
    EXPECT_EQ(d->allocated(), 0u);
    DQ_ASSERT_OK(a, d->charge(7, "test"));
  }
  EXPECT_EQ(d->allocated(), 0u);
  EXPECT_EQ(d->peak_allocated(), 1500u);
}

TEST(Charge, KeepsToTheLimit) {
  DQ_ASSERT_OK(const auto d, Device::open("cpu"));
  EXPECT_EQ(d->limit(), std::nullopt);
  d->set_limit(1000);
  EXPECT_EQ(d->limit(), 1000u);
  DQ_ASSERT_OK(const Device::Charge a, d->charge(600, "test"));
  const auto over = d->charge(401, "layers");
  ASSERT_FALSE(over.ok());
  EXPECT_EQ(over.error().code, ErrorCode::does_not_fit);
  EXPECT_THAT(over.error().message, HasSubstr("layers"));
  EXPECT_TRUE(d->charge(400, "test").ok());
  EXPECT_TRUE(d->charge(0, "test").ok());
  d->fail_allocation(1);
  EXPECT_FALSE(d->charge(1, "test").ok());
  EXPECT_TRUE(d->charge(1, "test").ok());
}

TEST(LargestBuffer, IsSaidWhenOnePieceIsTooLarge) {
  DQ_ASSERT_OK(const auto d, Device::open("cpu"));
  d->set_largest_buffer(1 << 20);
  EXPECT_EQ(d->largest_buffer(), size_t{1} << 20);
  EXPECT_TRUE(d->allocate(1 << 20, "test").ok());
  const auto refused = d->allocate((1 << 20) + 1, "key/value cache");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::does_not_fit);
  EXPECT_THAT(refused.error().message, HasSubstr("key/value cache"));
  EXPECT_THAT(refused.error().message, HasSubstr("largest buffer is 1.00 MiB"));
  EXPECT_EQ(d->allocated(), 0u);
}

}  // namespace
}  // namespace danqing
