// A graph over streamed weights, cut where the layer changes. Between Runner and PagedTensors.
#pragma once
#include <ggml.h>

#include <memory>
#include <vector>

#include "device/paged_tensors.h"

namespace danqing {

class StreamedPass {
 public:
  /// Null when every weight of the graph stays in memory. Errors (failed): weights that are only described, or more
  /// than one set of streamed ones. The graph and its tensors must outlive the object.
  static Result<std::unique_ptr<StreamedPass>> cut(Device& device, ggml_cgraph* graph);

  /// Computes segment by segment: waits for its layer, has the next one read in the background meanwhile, and behind
  /// the last one the first for the next pass. Errors: those of reading a layer.
  Result<ggml_status> compute();

 private:
  /// Nodes in their order, of which all that need streamed weights need those of `group` (kOther: none does).
  struct Segment {
    int group = PagedTensors::kOther;
    std::vector<ggml_tensor*> nodes;
    ggml_cgraph* graph = nullptr;
  };
  struct FreeContext {
    void operator()(ggml_context* c) const { ggml_free(c); }
  };
  explicit StreamedPass(Device& device) : device_(device) {}
  int next_group(size_t segment) const;
  Device& device_;
  PagedTensors* weights_ = nullptr;
  std::vector<Segment> segments_;
  std::unique_ptr<ggml_context, FreeContext> context_;
};

}  // namespace danqing
