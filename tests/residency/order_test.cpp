// Layers are numbered as a pass uses them, each is read once a pass, and the next one while one is computed with.
#include <gmock/gmock.h>

#include "device/paged_tensors.h"
#include "residency/subjects.h"

namespace danqing {
namespace {

using namespace danqing::testing;

/// Stands before streamed weights and writes down what is asked of them.
class Recorder : public PagedTensors {
 public:
  Recorder(Device& device, PagedTensors& behind) : PagedTensors(device), behind_(behind) {
    std::erase(device.paged(), &behind);
  }
  int group_of(const ggml_tensor* t) const override { return behind_.group_of(t); }
  Result<void> acquire(int group) override {
    log.push_back("acquire " + std::to_string(group));
    acquired.push_back(group);
    return behind_.acquire(group);
  }
  void release(int group) override {
    log.push_back("release " + std::to_string(group));
    behind_.release(group);
  }
  void prefetch(int group) override {
    log.push_back("prefetch " + std::to_string(group));
    behind_.prefetch(group);
  }
  std::vector<std::string> log;
  std::vector<int> acquired;

 private:
  PagedTensors& behind_;
};

std::vector<Kind> layered() {
  std::vector<Kind> all;
  for (const Kind& k : kinds())
    if (k.groups > 0) all.push_back(k);
  return all;
}

class Order : public ::testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, Order, ::testing::ValuesIn(layered()),
                         [](const auto& kind) { return kind.param.name; });

TEST_P(Order, EveryLayerOnceAndTheNextOneAhead) {
  TempDir dir;
  const ComponentFiles files = GetParam().write(dir.path(), Stored::bf16);
  for (CpuKernels kernels : {CpuKernels::danqing, CpuKernels::ggml})
    for (int resident : {0, 1}) {
      const auto device = open_cpu(1, kernels);
      DQ_ASSERT_OK(auto model, GetParam().load(device, files, {{}, Residency::streamed, resident}));
      ASSERT_EQ(device->paged().size(), 1u);
      Recorder recorder(*device, *device->paged().front());
      ASSERT_TRUE(model->run(0).ok());
      std::vector<int> once;
      for (int g = resident; g < GetParam().groups; ++g) once.push_back(g);
      ASSERT_GE(recorder.acquired.size(), once.size());
      ASSERT_EQ(recorder.acquired.size() % once.size(), 0u);  // a language model has several passes
      for (size_t i = 0; i < recorder.acquired.size(); ++i)
        EXPECT_EQ(recorder.acquired[i], once[i % once.size()]) << i;
      const auto at = [&](const std::string& what) {
        const auto found = std::find(recorder.log.begin(), recorder.log.end(), what);
        EXPECT_NE(found, recorder.log.end()) << what;
        return found - recorder.log.begin();
      };
      const std::string first = std::to_string(resident), second = std::to_string(resident + 1);
      EXPECT_EQ(at("prefetch " + second), at("acquire " + first) + 1);
      EXPECT_EQ(at("release " + first), at("prefetch " + second) + 1);
      EXPECT_EQ(recorder.log.back(), "prefetch " + first);  // for the next pass
    }
}

}  // namespace
}  // namespace danqing
