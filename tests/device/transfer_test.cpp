#include "device/transfer.h"

#include <gmock/gmock.h>

#include "testing/testing.h"

namespace danqing {
namespace {

TEST(Transfer, EveryWayOfEveryDevice) {
  for (const DeviceInfo& info : list_devices()) {
    DQ_ASSERT_OK(const std::shared_ptr<Device> device, Device::open(info.name, {}));
    for (const Transfer kind : {Transfer::to_device, Transfer::from_device, Transfer::on_device}) {
      DQ_ASSERT_OK(const double seconds, transfer_seconds(*device, kind, 1 << 20, 2));
      EXPECT_GT(seconds, 0) << info.name;
    }
    const auto pinned = transfer_seconds(*device, Transfer::to_device_pinned, 1 << 20, 1);
    EXPECT_TRUE(pinned || pinned.error().message.find("pinned") != std::string::npos);
    EXPECT_EQ(device->allocated(), 0u) << "everything is given back";
  }
}

TEST(Transfer, WhatDoesNotFitIsAnError) {
  DQ_ASSERT_OK(const std::shared_ptr<Device> device, Device::open("cpu", {}));
  device->set_limit(1 << 16);
  EXPECT_EQ(transfer_seconds(*device, Transfer::on_device, 1 << 20, 1).error().code, ErrorCode::does_not_fit);
}

}  // namespace
}  // namespace danqing
