// Operations that go over activations row by row: one pass over memory each. All f32; inputs may be views with any
// strides as long as the last axis is dense, where nothing else is said.
#pragma once
#include "device/kernels/op.h"

namespace danqing::kernels {

ggml_tensor* rms_norm(Graph& g, ggml_tensor* x, ggml_tensor* weight, float eps);
ggml_tensor* layer_norm(Graph& g, ggml_tensor* x, ggml_tensor* weight, ggml_tensor* bias, float eps);
/// x * (1 + scale) [+ shift], scale and shift broadcast like ggml's.
ggml_tensor* modulate(Graph& g, ggml_tensor* x, ggml_tensor* scale, ggml_tensor* shift);

enum class Unary { silu, gelu_erf, tanh };
ggml_tensor* unary(Graph& g, ggml_tensor* x, Unary f);
ggml_tensor* scale(Graph& g, ggml_tensor* x, float s);
enum class Binary { add, mul, silu_times, gelu_erf_times };
/// f(a, b); b broadcasts over a (silu_times: silu(a) * b).
ggml_tensor* binary(Graph& g, ggml_tensor* a, ggml_tensor* b, Binary f);

/// As nn::rope. x [B, T, heads, D]; cos and sin [B or 1, T, 1, D] contiguous.
ggml_tensor* rope(Graph& g, ggml_tensor* x, ggml_tensor* cos, ggml_tensor* sin, bool adjacent);

/// A dense copy of any view.
ggml_tensor* copy(Graph& g, ggml_tensor* x);
/// Along ggml's dimension `dim`.
ggml_tensor* concat(Graph& g, ggml_tensor* a, ggml_tensor* b, int dim);

}  // namespace danqing::kernels
