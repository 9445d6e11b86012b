#include "device/streamed_pass.h"

#include "base/try.h"

namespace danqing {
namespace {

struct Need {
  PagedTensors* weights = nullptr;
  int group = PagedTensors::kOther;
};

/// What a node needs that is not simply there.
Result<Need> need_of(Device& device, const ggml_tensor* node) {
  Need need;
  for (const ggml_tensor* t : node->src) {
    if (!t) continue;
    while (t->view_src) t = t->view_src;
    for (PagedTensors* paged : device.paged()) {
      const int group = paged->group_of(t);
      if (group == PagedTensors::kNever)
        return fail(ErrorCode::failed, "[graph] expected weights with values to compute with, got {}, only described",
                    t->name);
      if (group == PagedTensors::kOther) continue;
      if (need.weights && (need.weights != paged || need.group != group))
        return fail(ErrorCode::failed, "[graph] expected operations on one streamed layer each, got {} with another's",
                    t->name);
      need = {paged, group};
    }
  }
  return need;
}

}  // namespace

Result<std::unique_ptr<StreamedPass>> StreamedPass::cut(Device& device, ggml_cgraph* graph) {
  std::unique_ptr<StreamedPass> none;
  if (device.paged().empty()) return none;
  std::unique_ptr<StreamedPass> pass(new StreamedPass(device));
  std::vector<Segment>& segments = pass->segments_;
  for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
    ggml_tensor* node = ggml_graph_node(graph, i);
    DQ_TRY(const Need need, need_of(device, node));
    if (need.weights && pass->weights_ && need.weights != pass->weights_)
      return fail(ErrorCode::failed, "[graph] expected one set of streamed weights, got two");
    if (need.weights) pass->weights_ = need.weights;
    if (segments.empty() || (need.weights && need.group != segments.back().group)) segments.push_back({need.group, {}});
    segments.back().nodes.push_back(node);
  }
  if (!pass->weights_) return none;
  size_t bytes = 0;
  for (const Segment& s : segments) bytes += ggml_graph_overhead_custom(s.nodes.size(), false) + ggml_tensor_overhead();
  pass->context_.reset(ggml_init({bytes, nullptr, true}));
  if (!pass->context_)
    return fail(ErrorCode::does_not_fit, "[graph] expected memory for {} parts of a graph, got none", segments.size());
  for (Segment& s : segments) {
    s.graph = ggml_new_graph_custom(pass->context_.get(), s.nodes.size(), false);
    for (ggml_tensor* node : s.nodes) ggml_graph_add_node(s.graph, node);
  }
  return pass;
}

/// The layer that is needed after that of a segment; its own when there is no other.
int StreamedPass::next_group(size_t segment) const {
  const int own = segments_[segment].group;
  for (size_t i = 1; i < segments_.size(); ++i) {
    const int group = segments_[(segment + i) % segments_.size()].group;
    if (group >= 0 && group != own) return group;
  }
  return own;
}

Result<ggml_status> StreamedPass::compute() {
  for (size_t i = 0; i < segments_.size(); ++i) {
    const Segment& s = segments_[i];
    const int next = next_group(i);
    if (s.group >= 0) DQ_CHECK(weights_->acquire(s.group));
    weights_->prefetch(next);
    ggml_status status = GGML_STATUS_FAILED;
    try {
      status = ggml_backend_graph_compute(device_.backend(), s.graph);
    } catch (...) {
      if (s.group >= 0) weights_->release(s.group);
      throw;
    }
    if (s.group >= 0) {
      weights_->release(s.group);
      weights_->prefetch(next);  // where both have the same place
    }
    if (status != GGML_STATUS_SUCCESS) return status;
  }
  return GGML_STATUS_SUCCESS;
}

}  // namespace danqing
