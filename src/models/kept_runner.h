// The graph of a denoiser's last shape, kept between the steps.
#pragma once
#include <optional>
#include <utility>
#include <vector>

#include "base/try.h"
#include "device/graph.h"

namespace danqing {

/// `GraphShape` has operator==. `lengths`: of the texts whose tables lie in the graph's inputs; empty when none do.
template <class GraphShape>
struct KeptRunner {
  GraphShape shape;
  std::optional<Runner> runner;
  std::vector<int64_t> lengths;

  /// Gives the compute buffer back.
  void release() {
    runner.reset();
    lengths.clear();
  }
  /// The runner of the shape `wanted`, made by build() unless it is there already. Errors: does_not_fit, failed.
  template <class Build>
  Result<void> keep(const GraphShape& wanted, Build build) {
    if (runner && shape == wanted) return {};
    release();  // before the next one, so that both never hold memory together
    shape = wanted;
    Runner next(build());
    DQ_CHECK(next.prepare());
    runner.emplace(std::move(next));
    return {};
  }
};

}  // namespace danqing
