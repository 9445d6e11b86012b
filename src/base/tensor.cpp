#include "base/tensor.h"

#include <bit>
#include <cassert>
#include <limits>

#include "base/float_bits.h"
#include "base/try.h"

namespace danqing {

int64_t element_count(const Shape& shape) {
  int64_t n = 1;
  for (int64_t d : shape) {
    if (d < 0) return -1;
    if (d != 0 && n > std::numeric_limits<int64_t>::max() / d) return -1;
    n *= d;
  }
  return n;
}

std::string to_string(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

Tensor::Tensor(Shape s) : shape(std::move(s)) {
  const int64_t n = element_count(shape);
  assert(n >= 0);
  data.assign(static_cast<size_t>(n), 0.0f);
}

Tensor::Tensor(Shape s, std::vector<float> d) : shape(std::move(s)), data(std::move(d)) {
  assert(element_count(shape) == count());
}

Tensor slice(const Tensor& t, int64_t first, int64_t n) {
  assert(!t.shape.empty() && first >= 0 && n >= 0 && first + n <= t.shape[0]);
  const int64_t row = t.shape[0] ? t.count() / t.shape[0] : 0;
  Shape s = t.shape;
  s[0] = n;
  return Tensor(std::move(s), std::vector<float>(t.data.begin() + first * row, t.data.begin() + (first + n) * row));
}

Tensor item(const Tensor& t, int64_t i) {
  Tensor r = slice(t, i, 1);
  r.shape.erase(r.shape.begin());
  return r;
}

Result<Tensor> concat(const std::vector<Tensor>& items) {
  if (items.empty()) return fail(ErrorCode::failed, "[concat] expected at least one tensor, got none");
  Tensor r = items[0];
  if (r.shape.empty()) return fail(ErrorCode::failed, "[concat] expected tensors with an axis, got scalars");
  for (size_t i = 1; i < items.size(); ++i) {
    const Shape& s = items[i].shape;
    if (s.size() != r.shape.size() || !std::equal(s.begin() + 1, s.end(), r.shape.begin() + 1))
      return fail(ErrorCode::failed, "[concat] expected shape {}, got {}", to_string(items[0].shape), to_string(s));
    r.shape[0] += s[0];
    r.data.insert(r.data.end(), items[i].data.begin(), items[i].data.end());
  }
  return r;
}

Result<Tensor> stack(const std::vector<Tensor>& items) {
  std::vector<Tensor> rows = items;
  for (Tensor& t : rows) t.shape.insert(t.shape.begin(), 1);
  return concat(rows);
}

float round_bf16(float x) { return bf16_to_f32(f32_to_bf16(x)); }
float round_f16(float x) { return f16_to_f32(f32_to_f16(x)); }

}  // namespace danqing
