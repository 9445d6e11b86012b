// Runs one operation on random tensors, on the kernels that a test asks for.
#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>

#include "device/graph.h"

namespace danqing::nn {

inline Tensor random(const Shape& shape, unsigned seed, float std = 1.0f, float mean = 0.0f) {
  std::mt19937 gen(seed);
  std::normal_distribution<float> normal(mean, std);
  Tensor t(shape);
  for (float& x : t.data) x = normal(gen);
  return t;
}

using Inputs = std::map<std::string, Tensor>;
using Tensors = std::map<std::string, ggml_tensor*>;
using Build = std::function<ggml_tensor*(Graph&, const Tensors&)>;

struct Ran {
  Tensor y;
  std::map<std::string, Tensor> taps;
  size_t bytes = 0;
};

inline Ran compute(const Inputs& inputs, const Build& build, const DeviceOptions& options, bool taps = false) {
  Ran r;
  auto device = Device::open("cpu", options);
  EXPECT_TRUE(device.ok());
  auto graph = std::make_unique<Graph>(**device, 64, taps);
  Tensors t;
  for (const auto& [name, value] : inputs) t[name] = graph->input(name, DType::f32, value.shape);
  ggml_tensor* y = build(*graph, t);
  graph->output("y", y, {y->ne[3], y->ne[2], y->ne[1], y->ne[0]});
  Runner runner(std::move(graph));
  r.bytes = runner.measure();
  for (int run = 0; run < 2; ++run) {  // a second run finds what the first left in memory
    for (const auto& [name, value] : inputs) EXPECT_TRUE(runner.set(name, value.data).ok());
    const auto done = runner.run();
    EXPECT_TRUE(done.ok()) << (done.ok() ? "" : done.error().message);
  }
  auto read = runner.read("y");
  EXPECT_TRUE(read.ok());
  if (read.ok()) r.y = *read;
  EXPECT_TRUE(runner.send_taps([&](const std::string& n, const Tensor& v) { r.taps[n] = v; }).ok());
  return r;
}

}  // namespace danqing::nn
