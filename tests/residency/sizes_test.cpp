// What is said before anything is allocated is what is allocated then.
#include <gmock/gmock.h>

#include "residency/subjects.h"

namespace danqing {
namespace {

using namespace danqing::testing;
using ::testing::HasSubstr;

class Sizes : public ::testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, Sizes, ::testing::ValuesIn(kinds()), [](const auto& kind) { return kind.param.name; });

const std::vector<WeightPolicy> kPolicies = {{}, {DType::f32}, {DType::bf16}, {DType::q8_0}};
constexpr Stored kStored[] = {Stored::f32, Stored::bf16, Stored::f8, Stored::scaled_f8, Stored::q8_0};

TEST_P(Sizes, DescribedWeightsTakeNothingAndMeasureAsLoadedOnes) {
  const Kind& kind = GetParam();
  for (CpuKernels kernels : {CpuKernels::danqing, CpuKernels::ggml}) {
    TempDir dir;
    const ComponentFiles files = kind.write(dir.path(), Stored::bf16);
    for (const WeightPolicy& policy : kPolicies) {
      WeightPolicy described = policy;
      described.residency = Residency::described;
      const auto device = open_cpu(1, kernels), other = open_cpu(1, kernels);
      DQ_ASSERT_OK(const auto whole, kind.load(device, files, policy));
      DQ_ASSERT_OK(const auto nothing, kind.load(other, files, described));
      EXPECT_EQ(other->peak_allocated(), 0u);
      EXPECT_EQ(nothing->sizes().total, whole->sizes().total);
      EXPECT_EQ(nothing->sizes().by_dtype, whole->sizes().by_dtype);
      for (int shape : {0, 1}) {
        DQ_ASSERT_OK(const size_t expected, whole->measure(shape));
        DQ_ASSERT_OK(const size_t got, nothing->measure(shape));
        EXPECT_EQ(got, expected);
        EXPECT_GT(got, 0u);
        const auto run = nothing->run(shape);
        ASSERT_FALSE(run.ok());
        EXPECT_THAT(run.error().message, HasSubstr("described"));
      }
      EXPECT_EQ(device->allocated(), whole->sizes().total);
    }
  }
}

TEST_P(Sizes, AreWhatTheDeviceCounts) {
  const Kind& kind = GetParam();
  for (Stored stored : kStored) {
    TempDir dir;
    const ComponentFiles files = kind.write(dir.path(), stored);
    for (const WeightPolicy& policy : kPolicies) {
      const auto device = open_cpu();
      DQ_ASSERT_OK(const auto model, kind.load(device, files, policy));
      const WeightSizes& sizes = model->sizes();
      EXPECT_EQ(sizes.groups.size(), static_cast<size_t>(kind.groups));
      EXPECT_EQ(device->allocated(), sizes.total);
      EXPECT_EQ(device->allocated(), sizes.device_bytes(Residency::whole, 0));
      EXPECT_EQ(device->peak_allocated(), sizes.loading_bytes(Residency::whole, 0));
      uint64_t sum = sizes.fixed;
      for (uint64_t g : sizes.groups) sum += g;
      EXPECT_EQ(sum, sizes.total);
    }
  }
}

TEST_P(Sizes, PeakOfARunIsWeightsAndMeasure) {
  const Kind& kind = GetParam();
  for (Stored stored : {Stored::f32, Stored::bf16, Stored::scaled_f8}) {
    TempDir dir;
    const ComponentFiles files = kind.write(dir.path(), stored);
    for (int shape : {0, 1}) {
      const auto device = open_cpu(2);
      DQ_ASSERT_OK(const auto model, kind.load(device, files, {}));
      DQ_ASSERT_OK(const size_t measured, model->measure(shape));
      for (int repeat = 0; repeat < 2; ++repeat) {
        const auto run = model->run(shape);
        ASSERT_TRUE(run.ok()) << run.error().message;
      }
      const WeightSizes& s = model->sizes();
      EXPECT_EQ(device->peak_allocated(),
                std::max(s.loading_bytes(Residency::whole, 0), s.device_bytes(Residency::whole, 0) + measured));
    }
  }
}

TEST_P(Sizes, AreTheSameInManyBuffers) {
  const Kind& kind = GetParam();
  TempDir dir;
  const ComponentFiles files = kind.write(dir.path(), Stored::bf16);
  const auto device = open_cpu(), plain = open_cpu();
  DQ_ASSERT_OK(const auto whole, kind.load(plain, files, {DType::f32}));
  device->set_largest_buffer(kind.name == "z_image" ? 1 << 20 : 400 << 10);  // its largest matrix is that large
  DQ_ASSERT_OK(const auto split, kind.load(device, files, {DType::f32}));
  EXPECT_GT(split->sizes().total, device->largest_buffer());
  EXPECT_EQ(device->allocated(), split->sizes().total);
  device->set_largest_buffer(SIZE_MAX);
  DQ_ASSERT_OK(const auto got, split->run(0));
  DQ_ASSERT_OK(const auto expected, whole->run(0));
  EXPECT_EQ(got, expected);

  device->set_largest_buffer(2 << 10);  // less than one matrix
  const auto refused = kind.load(device, files, {DType::f32});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::does_not_fit);
  EXPECT_THAT(refused.error().message, HasSubstr("largest buffer is 2.00 KiB"));
}

TEST_P(Sizes, MappedWeightsKeepToTheLimit) {
  const Kind& kind = GetParam();
  TempDir dir;
  const ComponentFiles files = kind.write(dir.path(), Stored::bf16);
  const auto device = open_cpu();
  DQ_ASSERT_OK(auto model, kind.load(device, files, {}));
  const uint64_t needed = model->sizes().loading_bytes(Residency::whole, 0);
  model.reset();
  EXPECT_EQ(device->allocated(), 0u);
  device->set_limit(needed - 1);
  EXPECT_EQ(device->limit(), needed - 1);
  const auto refused = kind.load(device, files, {});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::does_not_fit);
  EXPECT_EQ(device->allocated(), 0u);
  device->set_limit(needed);
  EXPECT_TRUE(kind.load(device, files, {}).ok());
  EXPECT_EQ(open_cpu()->limit(), std::nullopt);
}

}  // namespace
}  // namespace danqing
