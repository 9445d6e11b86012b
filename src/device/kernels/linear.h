// Products of activations with stored weights.
#pragma once
#include "device/kernels/op.h"

namespace danqing::kernels {

/// Whether linear() can multiply with these weights: any ggml type that it can take apart, and stored_matrix.h's.
bool multiplies(const ggml_tensor* weight);

/// Whether attention over these values goes in 12-bit integers: they come out of a linear() whose product goes in
/// integers itself. With f32 weights, or out of a cache, it does not.
bool made_of_integers(const Graph& g, const ggml_tensor* values);

/// x [..., in] f32 contiguous, weight [out, in] that multiplies(), bias [out] f32 or null -> [..., out].
ggml_tensor* linear(Graph& g, ggml_tensor* x, ggml_tensor* weight, ggml_tensor* bias);

enum class Gate { silu, gelu_erf };
/// act(gate) * up. Where `up` is a linear() of this graph without bias, its product is formed anew with the gate as its
/// last step, so that its own result never lies in memory (a node that nothing needs is not computed).
ggml_tensor* gated(Graph& g, ggml_tensor* gate, ggml_tensor* up, Gate act);

}  // namespace danqing::kernels
