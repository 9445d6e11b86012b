// A NaN or an infinity never becomes a black picture: the run stops and names the stage and the layer.
#pragma once
#include <functional>
#include <string>

#include "base/tensor.h"

namespace danqing {

/// Nothing when all values are finite. Else an Error failed; `again` repeats the computation with taps to find the
/// first named intermediate that is not finite (its own failure is left out of the message).
Result<void> check_finite(const Tensor& t, const std::string& stage,
                          const std::function<Result<Tensor>(const TapSink& taps)>& again);

}  // namespace danqing
