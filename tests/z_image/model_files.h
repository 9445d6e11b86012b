// Z-Image's tiny model as files, and its golden cases.
#pragma once
#include <fmt/format.h>

#include <fstream>
#include <map>

#include "checkpoint/safetensors_writer.h"
#include "models/z_image/transformer.h"
#include "testing/testing.h"

namespace danqing::z_image {

using danqing::testing::close;
using danqing::testing::data;
using danqing::testing::Golden;
using danqing::testing::golden;

// Ten times the spread of correct f32 evaluations that the fixture measured (5.6e-7), below every visible mistake.
inline constexpr double kF32 = 5e-6;

inline const std::vector<std::string> kCases = {"pad_both",         "exact32",           "wide",     "batch2_same_pad",
                                                "batch2_other_pad", "batch2_other_size", "long_text"};

inline std::shared_ptr<Device> cpu(CpuKernels kernels = CpuKernels::danqing) {
  static std::map<CpuKernels, std::shared_ptr<Device>> devices;
  std::shared_ptr<Device>& device = devices[kernels];
  if (!device) {
    auto opened = Device::open("cpu", {.threads = 1, .kernels = kernels});
    EXPECT_TRUE(opened.ok());
    if (opened.ok()) device = *opened;
  }
  return device;
}

inline ComponentFiles files_of(std::shared_ptr<const TensorSource> source, const std::filesystem::path& config = {}) {
  ComponentFiles f{.role = "transformer", .path = config, .source = std::move(source)};
  if (config.empty()) return f;
  auto json = read_json(config / "config.json");
  EXPECT_TRUE(json.ok());
  if (json.ok()) f.config = *json;
  return f;
}

inline std::shared_ptr<const TensorSource> tiny_source() {
  static const auto source = TensorSource::open(data("fixtures/zimage-tiny/transformer"));
  EXPECT_TRUE(source.ok()) << (source.ok() ? "" : source.error().message);
  return source.ok() ? *source : nullptr;
}

inline std::unique_ptr<Transformer> load(const ComponentFiles& files, std::optional<DType> policy,
                                         CpuKernels kernels = CpuKernels::danqing) {
  auto model = Transformer::load(cpu(kernels), files, WeightPolicy{policy});
  EXPECT_TRUE(model.ok()) << (model.ok() ? "" : model.error().message);
  return model.ok() ? std::move(*model) : nullptr;
}
inline std::unique_ptr<Transformer> load_tiny(std::optional<DType> policy) {
  return load(files_of(tiny_source(), data("fixtures/zimage-tiny/transformer")), policy);
}

struct Inputs {
  std::vector<Tensor> latents, captions;
  std::vector<float> times;
};
inline Inputs inputs(const Golden& g, const std::string& name) {
  Inputs in;
  in.times = g.f32(name + ".in.t").data;
  for (size_t i = 0; i < in.times.size(); ++i) {
    in.latents.push_back(g.f32(fmt::format("{}.in.latents.{}", name, i)));
    in.captions.push_back(g.f32(fmt::format("{}.in.cap.{}", name, i)));
  }
  return in;
}

inline std::vector<Tensor> run(Transformer& model, const Inputs& in, const TapSink& taps = {}) {
  auto out = model.forward(in.latents, in.captions, in.times, taps);
  EXPECT_TRUE(out.ok()) << (out.ok() ? "" : out.error().message);
  return out.ok() ? *out : std::vector<Tensor>(in.latents.size());
}

/// A tensor to write under some name.
struct Stored {
  std::string name;
  DType dtype;
  Shape shape;
  std::vector<std::byte> bytes;
};
inline std::vector<Stored> stored(const TensorSource& source) {
  std::vector<Stored> out;
  for (const TensorInfo& t : source.tensors()) {
    const auto bytes = source.bytes(t);
    out.push_back({t.name, t.dtype, t.shape, {bytes.begin(), bytes.end()}});
  }
  return out;
}
inline std::shared_ptr<const TensorSource> in_memory(const std::vector<Stored>& tensors) {
  std::vector<TensorInfo> infos;
  std::vector<std::byte> storage;
  for (const Stored& t : tensors) {
    storage.resize((storage.size() + 31) / 32 * 32);
    infos.push_back({t.name, t.dtype, t.shape, 0, storage.size(), t.bytes.size()});
    storage.insert(storage.end(), t.bytes.begin(), t.bytes.end());
  }
  return TensorSource::from_memory(std::move(infos), std::move(storage));
}

}  // namespace danqing::z_image
