// Products of activations with stored weights.
#pragma once
#include "device/kernels/op.h"

namespace danqing::kernels {

/// Whether linear() can multiply with weights of this ggml type.
bool multiplies(ggml_type type);

/// x [..., in] f32 contiguous, weight [out, in] of any type that multiplies(), bias [out] f32 or null -> [..., out].
ggml_tensor* linear(Graph& g, ggml_tensor* x, ggml_tensor* weight, ggml_tensor* bias);

enum class Gate { silu, gelu_erf };
/// act(gate) * (x weight^T): the second half of a gated MLP without its intermediate in memory. gate has the result's sizes.
ggml_tensor* linear_gated(Graph& g, ggml_tensor* x, ggml_tensor* weight, ggml_tensor* gate, Gate act);

}  // namespace danqing::kernels
