// Products of activations with stored weights.
#pragma once
#include "device/kernels/op.h"

namespace danqing::kernels {

/// Whether linear() can multiply with weights of this ggml type.
bool multiplies(ggml_type type);

/// x [..., in] f32 contiguous, weight [out, in] of any type that multiplies(), bias [out] f32 or null -> [..., out].
ggml_tensor* linear(Graph& g, ggml_tensor* x, ggml_tensor* weight, ggml_tensor* bias);

enum class Gate { silu, gelu_erf };
/// act(gate) * up. Where `up` is a linear() of this graph without bias, its product is formed anew with the gate as its
/// last step, so that its own result never lies in memory (a node that nothing needs is not computed).
ggml_tensor* gated(Graph& g, ggml_tensor* gate, ggml_tensor* up, Gate act);

}  // namespace danqing::kernels
