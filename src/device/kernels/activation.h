// Functions of single values over rows, vectorised. y may be x.
#pragma once
#include <cstdint>

namespace danqing::kernels {

void silu(const float* x, int64_t n, float* y);
void gelu_erf(const float* x, int64_t n, float* y);
/// y = act(gate) * x
void silu_times(const float* gate, const float* x, int64_t n, float* y);
void gelu_erf_times(const float* gate, const float* x, int64_t n, float* y);

/// y[i] = exp(x[i] - shift); returns the sum. -inf gives 0.
float exp_minus(const float* x, int64_t n, float shift, float* y);
/// Largest value; -inf for none.
float maximum(const float* x, int64_t n);

/// y = a * b, y = a + b, y = x * s, y = x + s
void multiply(const float* a, const float* b, int64_t n, float* y);
void add(const float* a, const float* b, int64_t n, float* y);
void scale(const float* x, float s, int64_t n, float* y);
void add_scalar(const float* x, float s, int64_t n, float* y);
/// y += s * x
void add_scaled(const float* x, float s, int64_t n, float* y);

/// Sum of squares; sum; both with f64 totals over pieces of f32, so that long rows keep their digits.
double sum_squares(const float* x, int64_t n);
double sum(const float* x, int64_t n);
/// Sum of (x - mean)^2
double sum_squared_differences(const float* x, float mean, int64_t n);
/// y = (x - mean) * factor [* weight] [+ bias]; weight and bias may be null.
void normalise(const float* x, float mean, float factor, const float* weight, const float* bias, int64_t n, float* y);
/// y = x * (1 + scale) [+ shift]
void modulate(const float* x, const float* scale, const float* shift, int64_t n, float* y);

}  // namespace danqing::kernels
