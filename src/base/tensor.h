// A dense f32 tensor in host memory: the only form in which stages hand each other their results.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "danqing/result.h"

namespace danqing {

/// Sizes from the slowest to the fastest axis, as torch prints them. Rank 0 is a scalar.
using Shape = std::vector<int64_t>;

/// Number of elements; -1 when a size is negative or the product does not fit into 63 bits.
int64_t element_count(const Shape& shape);
/// "[2, 128, 4, 6]"
std::string to_string(const Shape& shape);

/// Row-major f32. Invariant: data.size() == element_count(shape).
struct Tensor {
  Shape shape;
  std::vector<float> data;

  Tensor() = default;
  explicit Tensor(Shape s);               ///< zeros
  Tensor(Shape s, std::vector<float> d);  ///< sizes must agree
  int64_t size(size_t axis) const { return shape[axis]; }
  int64_t count() const { return static_cast<int64_t>(data.size()); }
};

/// Item `i` of axis 0, the axis removed; `slice(t, i, n)` keeps it with n items.
Tensor item(const Tensor& t, int64_t i);
Tensor slice(const Tensor& t, int64_t first, int64_t n);
/// Tensors of one shape along a new axis 0 / along the existing axis 0.
Result<Tensor> stack(const std::vector<Tensor>& items);
Result<Tensor> concat(const std::vector<Tensor>& items);

/// Receives named intermediates (for parity checks and --dump-tensors). Empty: nothing is kept.
using TapSink = std::function<void(const std::string& name, const Tensor& value)>;

/// Round to the nearest bf16 / f16 (ties to even) and widen again: torch's rounding rule.
float round_bf16(float x);
float round_f16(float x);

}  // namespace danqing
