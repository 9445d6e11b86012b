// A device that fails at any allocation gives a clean error, leaves nothing behind, and serves the next try.
#include "residency/subjects.h"

namespace danqing {
namespace {

using namespace danqing::testing;

class Failure : public ::testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, Failure, ::testing::ValuesIn(kinds()),
                         [](const auto& kind) { return kind.param.name; });

std::vector<WeightPolicy> policies(const Kind& kind) {
  std::vector<WeightPolicy> all = {{}, {DType::f32}};
  if (kind.groups > 0)
    for (int resident : {0, 2}) {
      all.push_back({{}, Residency::streamed, resident});
      all.push_back({DType::q8_0, Residency::streamed, resident});
    }
  return all;
}

TEST_P(Failure, AtEveryAllocationOfLoadingAndRunning) {
  TempDir dir;
  const ComponentFiles files = GetParam().write(dir.path(), Stored::bf16);
  for (CpuKernels kernels : {CpuKernels::danqing, CpuKernels::ggml})
    for (const WeightPolicy& policy : policies(GetParam())) {
      const auto device = open_cpu(1, kernels);
      const auto once = [&]() -> Result<std::vector<float>> {
        auto model = GetParam().load(device, files, policy);
        if (!model) return model.error();
        return (*model)->run(0);
      };
      const auto expected = once();
      ASSERT_TRUE(expected.ok()) << expected.error().message;
      int failures = 0;
      for (int k = 1;; ++k) {
        device->fail_allocation(k);
        const auto out = once();
        EXPECT_EQ(device->allocated(), 0u) << k;
        if (out) {
          EXPECT_EQ(*out, *expected);
          break;
        }
        ++failures;
        EXPECT_EQ(out.error().code, ErrorCode::does_not_fit) << k << ": " << out.error().message;
        ASSERT_LT(k, 1000);
      }
      EXPECT_GE(failures, 3);  // the weights, what computes, its scratch
      device->fail_allocation(0);
    }
}

TEST_P(Failure, OfARunLeavesTheModelUsable) {
  TempDir dir;
  const ComponentFiles files = GetParam().write(dir.path(), Stored::bf16);
  for (const WeightPolicy& policy : policies(GetParam())) {
    const auto device = open_cpu();
    DQ_ASSERT_OK(const auto model, GetParam().load(device, files, policy));
    DQ_ASSERT_OK(const auto expected, model->run(1));
    for (int k = 1;; ++k) {
      const auto other = model->run(0);  // gives the memory of the other shape back
      ASSERT_TRUE(other.ok()) << other.error().message;
      device->fail_allocation(k);
      const auto out = model->run(1);
      device->fail_allocation(0);
      if (out) {
        EXPECT_GT(k, 1);
        EXPECT_EQ(*out, expected);
        break;
      }
      EXPECT_EQ(out.error().code, ErrorCode::does_not_fit) << k;
      DQ_ASSERT_OK(const auto again, model->run(1));
      EXPECT_EQ(again, expected) << k;
      ASSERT_LT(k, 1000);
    }
  }
}

}  // namespace
}  // namespace danqing
