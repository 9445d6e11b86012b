// The tiny models of the fixtures, with configs that a test may change first.
#pragma once
#include <functional>
#include <memory>

#include "checkpoint/checkpoint.h"
#include "device/device.h"
#include "device/weights.h"
#include "testing/testing.h"

namespace danqing::mistral3 {

inline ComponentFiles stack_files(const std::filesystem::path& directory) {
  ComponentFiles f{.role = "text_encoder", .path = directory};
  auto source = TensorSource::open(directory);
  EXPECT_TRUE(source.ok()) << (source.ok() ? "" : source.error().message);
  if (source.ok()) f.source = *source;
  auto config = read_json(directory / "config.json");
  EXPECT_TRUE(config.ok());
  if (config.ok()) f.config = *config;
  return f;
}
inline ComponentFiles tiny(const char* component) {
  return stack_files(danqing::testing::data("fixtures/ernie-tiny") / component);
}

inline std::shared_ptr<Device> cpu() {
  static const auto device =
      Device::open("cpu", {.threads = 1});  // tiny products: more threads only wait for each other
  EXPECT_TRUE(device.ok());
  return device.ok() ? *device : nullptr;
}

/// The same tensors under other names and, if wanted, without some of them.
inline std::shared_ptr<const TensorSource> renamed(const TensorSource& source,
                                                   const std::function<std::string(const std::string&)>& rename) {
  std::vector<TensorInfo> infos;
  std::vector<std::byte> storage;
  for (TensorInfo t : source.tensors()) {
    const auto bytes = source.bytes(t);
    t.name = rename(t.name);
    if (t.name.empty()) continue;
    storage.resize((storage.size() + 31) / 32 * 32);
    t.file = 0, t.offset = storage.size();
    storage.insert(storage.end(), bytes.begin(), bytes.end());
    infos.push_back(t);
  }
  return TensorSource::from_memory(std::move(infos), std::move(storage));
}

inline constexpr WeightPolicy kF32{.matrix = DType::f32};
inline constexpr WeightPolicy kBf16{.matrix = DType::bf16};

}  // namespace danqing::mistral3
