// Components with random weights of a given config, for benchmarks where no checkpoint is at hand.
#pragma once
#include "checkpoint/checkpoint.h"
#include "checkpoint/tensor_spec.h"

namespace danqing::app {

/// Random bf16 tensors for every spec: matrices and kernels uniform with variance 1/inputs so that activations keep
/// their size, norm weights 1, biases 0. Memory: 2 bytes a parameter. Error does_not_fit when the host has less.
Result<ComponentFiles> synthesize(const std::string& role, const Json& config, const std::vector<TensorSpec>& specs);

}  // namespace danqing::app
