// A graph for one test: named inputs from host tensors, one output.
#pragma once
#include <map>
#include <memory>
#include <random>

#include "nn/nn.h"
#include "testing/testing.h"

namespace danqing::nn_testing {

class Bench {
 public:
  explicit Bench(int threads = 2) {
    auto d = Device::open("cpu", {threads});
    EXPECT_TRUE(d.ok());
    device_ = *d;
    graph_ = std::make_unique<Graph>(*device_, 256);
  }
  Graph& graph() { return *graph_; }
  Device& device() { return *device_; }
  ggml_tensor* input(const std::string& name, const Tensor& t, DType dtype = DType::f32) {
    inputs_[name] = t;
    return graph_->input(name, dtype, t.shape);
  }
  ggml_tensor* ids(const std::string& name, const std::vector<int32_t>& v) {
    ids_[name] = v;
    return graph_->input(name, DType::i32, {static_cast<int64_t>(v.size())});
  }
  /// Runs; the output in `shape` (empty: the tensor's own).
  Tensor run(ggml_tensor* y, Shape shape = {}) {
    graph_->output("y", y, std::move(shape));
    runner_ = std::make_unique<Runner>(std::move(graph_));
    return again();
  }
  Tensor again() {
    for (const auto& [name, t] : inputs_) expect_ok(runner_->set(name, t.data));
    for (const auto& [name, v] : ids_) expect_ok(runner_->set(name, v));
    expect_ok(runner_->run());
    auto y = runner_->read("y");
    EXPECT_TRUE(y.ok()) << (y.ok() ? "" : y.error().message);
    return y.ok() ? *y : Tensor();
  }
  Runner& runner() { return *runner_; }

 private:
  static void expect_ok(const Result<void>& r) { EXPECT_TRUE(r.ok()) << (r.ok() ? "" : r.error().message); }
  std::shared_ptr<Device> device_;
  std::unique_ptr<Graph> graph_;
  std::unique_ptr<Runner> runner_;
  std::map<std::string, Tensor> inputs_;
  std::map<std::string, std::vector<int32_t>> ids_;
};

inline Tensor random(const Shape& shape, unsigned seed, float std = 1.0f) {
  std::mt19937 gen(seed);
  std::normal_distribution<float> normal(0, std);
  Tensor t(shape);
  for (float& x : t.data) x = normal(gen);
  return t;
}

}  // namespace danqing::nn_testing
