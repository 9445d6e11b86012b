// One forward pass being built, and the runner that executes it.
// A graph is built once per shape and run many times with other inputs (denoising steps). Inputs and outputs have
// names.
#pragma once
#include <ggml.h>

#include <algorithm>
#include <cstddef>
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

class StreamedPass;

class Graph {
 public:
  /// `max_nodes` is the expected number of operations (models compute it from their layer count); a graph that becomes
  /// larger costs one more small allocation, nothing else. `device` must outlive the graph.
  Graph(Device& device, size_t max_nodes, bool keep_taps = false);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  /// Where the next operation goes. Ask anew for every operation: it changes when one context is full.
  ggml_context* ctx() const;
  Device& device() const { return device_; }
  /// New input; `shape` in torch order (at most 4 axes; the ggml sizes are the reverse). Its values stay between runs.
  ggml_tensor* input(std::string name, DType dtype, const Shape& shape);
  /// Marks a result; read it with Runner::read after run(). `shape` (of the same number of elements) is what read()
  /// reports; empty: the tensor's own sizes without the ones in front.
  void output(std::string name, ggml_tensor* t, Shape shape = {});
  /// Names an intermediate. Costs nothing unless the graph was made with keep_taps: then it becomes an output.
  void tap(const std::string& name, ggml_tensor* t, Shape shape = {});
  bool keeps_taps() const { return keep_taps_; }
  /// A side effect that must run although no output depends on it. Operations run in the order of the
  /// require/output/tap calls that need them.
  void require(ggml_tensor* t);

  // For device/kernels: memory that an operation needs only while it runs (one for all of them, as large as the largest
  // asks for), and things that must live as long as the graph.
  struct Scratch {
    size_t bytes = 0;
    std::byte* data = nullptr;  ///< set by the Runner
  };
  void need_scratch(size_t bytes) { scratch_.bytes = std::max(scratch_.bytes, bytes); }
  Scratch& scratch() { return scratch_; }
  void own(std::shared_ptr<void> thing) { owned_.push_back(std::move(thing)); }

 private:
  friend class Runner;
  struct Named {
    std::string name;
    ggml_tensor* tensor;
    Shape shape;
  };
  Named keep(std::string name, ggml_tensor* t, Shape shape);
  Named* find(std::vector<Named>& in, std::string_view name);
  ggml_cgraph* finish();  ///< all that was required, in order
  Device& device_;
  size_t nodes_per_context_;
  mutable std::vector<ggml_context*> contexts_;
  ggml_context* graph_context_ = nullptr;
  ggml_cgraph* graph_ = nullptr;
  bool keep_taps_ = false;
  std::vector<Named> inputs_, outputs_, taps_;
  std::vector<ggml_tensor*> required_;
  Scratch scratch_;
  std::vector<std::shared_ptr<void>> owned_;
};

/// Owns the compute buffer of one graph. The graph must not be added to once it has a Runner.
class Runner {
 public:
  explicit Runner(std::unique_ptr<Graph> graph);
  ~Runner();
  Runner(Runner&&) noexcept;

  /// Exact bytes of the compute buffer and of what operations need while they run, without allocating them.
  size_t measure();
  /// Allocates; error does_not_fit, or failed when the device lacks an operation. Called by set() and run() if needed.
  Result<void> prepare();
  /// Sets an input by name. Sizes must agree (checked: an Error, not an assert). f32 data is converted to the input's
  /// dtype. An input on which nothing depends is checked and ignored.
  Result<void> set(std::string_view name, std::span<const float> values);
  Result<void> set(std::string_view name, std::span<const int32_t> values);
  /// Computes, layer by layer where weights are streamed. `cancelled` is polled between nodes on the CPU; true gives
  /// Error cancelled. Device failure: device_lost. A streamed layer that cannot be read: bad_input.
  Result<void> run(const std::function<bool()>& cancelled = {});
  /// A marked output, widened to f32, in the shape given when it was marked.
  Result<Tensor> read(std::string_view name) const;
  /// Sends every tap to `sink` under "prefix" + name. No effect unless the graph keeps taps.
  Result<void> send_taps(const TapSink& sink, const std::string& prefix = "") const;
  Graph& graph() { return *graph_; }

 private:
  Result<Graph::Named*> input_for(std::string_view name, size_t count);
  std::unique_ptr<Graph> graph_;
  Device::GraphBuffer buffer_{nullptr, {}};
  Device::Buffer scratch_{nullptr, {}};
  Device::Charge work_;
  std::unique_ptr<StreamedPass> streamed_;  ///< null: computed in one go
};

}  // namespace danqing
