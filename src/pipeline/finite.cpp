#include "pipeline/finite.h"

#include <algorithm>
#include <cmath>

#include "base/try.h"

namespace danqing {
namespace {

bool finite(const Tensor& t) {
  float sum = 0;  // x - x is 0 for what is finite and NaN otherwise; a sum of these vectorises
  for (const float v : t.data) sum += v - v;
  return sum == 0;
}

}  // namespace

Result<void> check_finite(const Tensor& t, const std::string& stage,
                          const std::function<Result<Tensor>(const TapSink& taps)>& again) {
  if (finite(t)) return {};
  std::string layer;
  if (again)
    (void)again([&](const std::string& name, const Tensor& value) {
      if (!layer.empty()) return;
      if (!finite(value)) layer = name;
    });
  const auto bad = std::find_if(t.data.begin(), t.data.end(), [](float v) { return !std::isfinite(v); });
  return fail(ErrorCode::failed,
              "[{}] expected finite values, got {}{}: damaged weights, or values beyond the dtype (--dtype bf16 or f32 "
              "helps then)",
              stage, std::isnan(*bad) ? "NaN" : "infinity",
              layer.empty() ? std::string(" in the result") : fmt::format(" first in {}", layer));
}

}  // namespace danqing
