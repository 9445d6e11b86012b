// One forward pass being built, and the runner that executes it.
// A graph is built once per shape and run many times with other inputs (denoising steps). Inputs and outputs have names.
#pragma once
#include <ggml.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/tensor.h"
#include "device/device.h"

namespace danqing {

class Graph {
 public:
  /// `max_nodes` bounds the number of operations; models compute it from their layer count.
  Graph(Device& device, size_t max_nodes, bool keep_taps = false);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  ggml_context* ctx() const { return ctx_; }
  Device& device() const { return device_; }
  /// New input; `shape` in torch order (at most 4 axes; the ggml sizes are the reverse).
  ggml_tensor* input(std::string name, DType dtype, const Shape& shape);
  /// Marks a result; read it with Runner::read after run().
  void output(std::string name, ggml_tensor* t);
  /// Names an intermediate. Costs nothing unless the graph was made with keep_taps: then it becomes an output.
  void tap(const std::string& name, ggml_tensor* t);
  bool keeps_taps() const { return keep_taps_; }
  /// A side effect that must run although no output depends on it (writes into a KV cache).
  void require(ggml_tensor* t);

 private:
  friend class Runner;
  struct Named { std::string name; ggml_tensor* tensor; Shape shape; };
  Device& device_;
  ggml_context* ctx_ = nullptr;
  ggml_cgraph* graph_ = nullptr;
  bool keep_taps_ = false;
  std::vector<Named> inputs_, outputs_, taps_;
};

/// Owns the compute buffer of one graph.
class Runner {
 public:
  explicit Runner(std::unique_ptr<Graph> graph);
  ~Runner();
  Runner(Runner&&) noexcept;

  /// Exact bytes of the compute buffer, without allocating it.
  size_t measure();
  /// Allocates; error does_not_fit. Called by run() if needed.
  Result<void> prepare();
  /// Sets an input by name. Sizes must agree (checked: an Error, not an assert). f32 data is converted to the input's dtype.
  Result<void> set(std::string_view name, std::span<const float> values);
  Result<void> set(std::string_view name, std::span<const int32_t> values);
  /// Computes. `cancelled` is polled between nodes on the CPU; true gives Error cancelled. Device failure: device_lost.
  Result<void> run(const std::function<bool()>& cancelled = {});
  /// A marked output, widened to f32, shape in torch order as given when it was marked (rank 4 sizes of 1 kept off the front).
  Result<Tensor> read(std::string_view name) const;
  /// Sends every tap to `sink` under "prefix" + name. No effect unless the graph keeps taps.
  Result<void> send_taps(const TapSink& sink, const std::string& prefix = "") const;
  Graph& graph() { return *graph_; }

 private:
  std::unique_ptr<Graph> graph_;
  ggml_gallocr* galloc_ = nullptr;
  Device::Buffer buffer_{nullptr, {nullptr}};
  bool prepared_ = false;
};

}  // namespace danqing
