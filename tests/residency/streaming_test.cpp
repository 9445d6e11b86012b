// A model whose layers take turns in two places computes what the whole model computes, to the bit.
#include <gmock/gmock.h>

#include <filesystem>
#include <map>

#include "residency/subjects.h"

namespace danqing {
namespace {

using namespace danqing::testing;
using ::testing::HasSubstr;

WeightPolicy streamed(WeightPolicy policy, int resident) {
  policy.residency = Residency::streamed;
  policy.resident_groups = resident;
  return policy;
}

std::vector<Kind> layered() {
  std::vector<Kind> all;
  for (const Kind& k : kinds())
    if (k.groups > 0) all.push_back(k);
  return all;
}

class Streaming : public ::testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, Streaming, ::testing::ValuesIn(layered()),
                         [](const auto& kind) { return kind.param.name; });

using Taps = std::map<std::string, std::vector<float>>;
std::vector<float> run(Subject& model, int shape, Taps* taps = nullptr) {
  TapSink sink;
  if (taps) sink = [&](const std::string& name, const Tensor& t) { (*taps)[name] = t.data; };
  const auto out = model.run(shape, sink);
  EXPECT_TRUE(out.ok()) << (out.ok() ? "" : out.error().message);
  return out.ok() ? *out : std::vector<float>();
}

/// Whatever is stored and kept, however many layers stay: results, bytes on the device, and their peak.
void compare(const Kind& kind, Stored stored, const WeightPolicy& policy, int threads, CpuKernels kernels,
             const std::vector<int>& residents = {0, 2}) {
  TempDir dir;
  const ComponentFiles files = kind.write(dir.path(), stored);
  DQ_ASSERT_OK(const auto whole, kind.load(open_cpu(threads, kernels), files, policy));
  const std::vector<float> expected[2] = {run(*whole, 0), run(*whole, 1)};
  ASSERT_FALSE(expected[0].empty());
  for (int resident : residents) {
    const WeightPolicy p = streamed(policy, resident);
    const auto device = open_cpu(threads, kernels);
    DQ_ASSERT_OK(const auto model, kind.load(device, files, p));
    const WeightSizes& sizes = model->sizes();
    const uint64_t bytes = sizes.device_bytes(Residency::streamed, resident);
    EXPECT_EQ(device->allocated(), bytes) << resident;
    EXPECT_EQ(device->peak_allocated(), sizes.loading_bytes(Residency::streamed, resident)) << resident;
    if (resident >= kind.groups - 2) {
      EXPECT_EQ(bytes, sizes.total) << resident;
    }
    uint64_t computing = 0;
    for (int shape : {0, 1}) {
      DQ_ASSERT_OK(const size_t measured, model->measure(shape));
      computing = std::max<uint64_t>(computing, measured);
    }
    for (int shape : {0, 0, 1, 0}) EXPECT_EQ(run(*model, shape), expected[shape]) << resident << " shape " << shape;
    EXPECT_EQ(device->peak_allocated(), std::max(sizes.loading_bytes(Residency::streamed, resident), bytes + computing))
        << resident;
  }
}

TEST_P(Streaming, MappedLayers) {
  const int n = GetParam().groups;
  for (int threads : {1, 2})
    compare(GetParam(), Stored::bf16, {}, threads, CpuKernels::danqing, {0, 1, n - 3, n - 1, n});
}
TEST_P(Streaming, MappedLayersWithPlainGgml) {
  // One thread: ggml's wait for each other in a loop, which takes minutes on a busy machine.
  compare(GetParam(), Stored::f32, {}, 1, CpuKernels::ggml);
}
TEST_P(Streaming, ConvertedLayers) {
  const int n = GetParam().groups;
  for (int threads : {1, 2})
    compare(GetParam(), Stored::scaled_f8, {DType::bf16}, threads, CpuKernels::danqing, {0, 1, n - 1, n});
  compare(GetParam(), Stored::f8, {DType::bf16}, 1, CpuKernels::danqing);
}
TEST_P(Streaming, LayersWithFactorsBesideThem) {
  for (Stored stored : {Stored::scaled_f8, Stored::f8}) compare(GetParam(), stored, {}, 2, CpuKernels::danqing);
}
TEST_P(Streaming, LayersInAnotherDtype) {
  compare(GetParam(), Stored::bf16, {DType::f32}, 1, CpuKernels::danqing);
  compare(GetParam(), Stored::bf16, {DType::q8_0}, 2, CpuKernels::danqing);
  compare(GetParam(), Stored::q8_0, {}, 1, CpuKernels::danqing);
}

TEST_P(Streaming, TakesLessThanTheWhole) {
  TempDir dir;
  const ComponentFiles files = GetParam().write(dir.path(), Stored::bf16);
  for (const WeightPolicy& policy : {WeightPolicy{}, WeightPolicy{DType::f32}}) {
    DQ_ASSERT_OK(const auto model, GetParam().load(open_cpu(), files, streamed(policy, 0)));
    const WeightSizes& s = model->sizes();
    const uint64_t two = 2 * *std::max_element(s.groups.begin(), s.groups.end());
    EXPECT_LE(s.device_bytes(Residency::streamed, 0), s.fixed + two + s.staging);
    for (int resident = 0; resident + 3 < GetParam().groups; ++resident)
      EXPECT_LE(s.device_bytes(Residency::streamed, resident), s.device_bytes(Residency::streamed, resident + 1));
    EXPECT_EQ(s.device_bytes(Residency::streamed, GetParam().groups), s.total);
    EXPECT_EQ(s.device_bytes(Residency::streamed, -5), s.device_bytes(Residency::streamed, 0));
    EXPECT_EQ(s.device_bytes(Residency::described, 0), 0u);
  }
}

TEST_P(Streaming, TapsAreTheSame) {
  if (!GetParam().has_taps) GTEST_SKIP() << "has none";
  TempDir dir;
  const ComponentFiles files = GetParam().write(dir.path(), Stored::scaled_f8);
  DQ_ASSERT_OK(const auto whole, GetParam().load(open_cpu(), files, {}));
  DQ_ASSERT_OK(const auto model, GetParam().load(open_cpu(), files, streamed({}, 1)));
  Taps expected, got;
  run(*whole, 1, &expected);
  run(*model, 1, &got);
  EXPECT_GE(expected.size(), static_cast<size_t>(GetParam().groups));
  EXPECT_EQ(got, expected);
}

TEST_P(Streaming, InManyBuffers) {
  TempDir dir;
  const ComponentFiles files = GetParam().write(dir.path(), Stored::bf16);
  DQ_ASSERT_OK(const auto whole, GetParam().load(open_cpu(), files, {DType::f32}));
  const auto device = open_cpu();
  // About three buffers a layer; Z-Image's largest matrix is not in one.
  device->set_largest_buffer(GetParam().name == "z_image" ? 1 << 20 : 40 << 10);
  if (GetParam().name != "z_image" && GetParam().name != "ernie_image") device->set_largest_buffer(90 << 10);
  if (GetParam().name == "ernie_image") device->set_largest_buffer(100 << 10);
  DQ_ASSERT_OK(const auto model, GetParam().load(device, files, streamed({DType::f32}, 0)));
  EXPECT_EQ(device->allocated(), model->sizes().device_bytes(Residency::streamed, 0));
  device->set_largest_buffer(SIZE_MAX);
  for (int shape : {0, 1}) EXPECT_EQ(run(*model, shape), run(*whole, shape));
}

TEST_P(Streaming, CancelledAnywhereItGoesOnAfterwards) {
  if (!GetParam().can_cancel) GTEST_SKIP() << "cannot be cancelled";
  TempDir dir;
  for (Stored stored : {Stored::bf16, Stored::f8}) {
    const ComponentFiles files = GetParam().write(dir.path(), stored);
    DQ_ASSERT_OK(const auto whole, GetParam().load(open_cpu(), files, {}));
    DQ_ASSERT_OK(const auto model, GetParam().load(open_cpu(), files, streamed({}, 0)));
    const std::vector<float> expected = run(*whole, 0);
    int polls = 0;
    ASSERT_TRUE(model->run(0, {}, [&] { return ++polls < 0; }).ok());
    ASSERT_GT(polls, GetParam().groups);
    for (int after = 1; after < polls; after += 1 + polls / 23) {
      int n = 0;
      const auto out = model->run(0, {}, [&] { return ++n >= after; });
      ASSERT_FALSE(out.ok()) << after;
      EXPECT_EQ(out.error().code, ErrorCode::cancelled);
      EXPECT_EQ(run(*model, 0), expected) << after;
    }
  }
}

TEST_P(Streaming, FreedWhileALayerIsRead) {
  TempDir dir;
  const ComponentFiles files = GetParam().write(dir.path(), Stored::scaled_f8);
  for (int i = 0; i < 20; ++i) {
    const auto device = open_cpu();
    DQ_ASSERT_OK(auto model, GetParam().load(device, files, streamed({}, 0)));
    if (i % 2) run(*model, 0);
    model.reset();
    EXPECT_EQ(device->allocated(), 0u);
  }
}

TEST_P(Streaming, AFileThatBecameShorterIsAnError) {
  TempDir dir;
  for (Stored stored : {Stored::bf16, Stored::scaled_f8}) {
    const ComponentFiles files = GetParam().write(dir.path(), stored);
    DQ_ASSERT_OK(const auto model, GetParam().load(open_cpu(), files, streamed({}, 0)));
    const std::vector<float> expected = run(*model, 0);
    const std::filesystem::path path = files.source->files().front();
    TempDir other;
    std::filesystem::copy_file(path, other / "copy");
    // The first tensor of the second layer is where it is cut: what is resident lies before.
    uint64_t cut = UINT64_MAX;
    for (const TensorInfo& t : files.source->tensors())
      if (t.name.find("layers.1.") != t.name.npos || t.name.find("blk.1.") != t.name.npos)
        cut = std::min(cut, t.offset);
    ASSERT_LT(cut, std::filesystem::file_size(path));
    std::filesystem::resize_file(path, cut);
    const auto failed = model->run(0);
    ASSERT_FALSE(failed.ok());
    EXPECT_EQ(failed.error().code, ErrorCode::bad_input);
    EXPECT_THAT(failed.error().message, HasSubstr("become shorter"));
    std::filesystem::copy_file(other / "copy", path, std::filesystem::copy_options::overwrite_existing);
    EXPECT_EQ(run(*model, 0), expected);
  }
}

}  // namespace
}  // namespace danqing
