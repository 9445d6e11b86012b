// Group norm of pictures with their channels side by side (channels_last.h). Wu & He 2018.
#pragma once
#include "device/kernels/op.h"

namespace danqing::kernels {

/// x [B, C, H, W] in any order, weight and bias [C] or null -> a view [B, C, H, W]. Two operations: the statistics
/// [B, 3, C] (mean, factor and shift of every channel), and their application, which the next convolution takes over.
ggml_tensor* group_norm(Graph& g, ggml_tensor* x, ggml_tensor* weight, ggml_tensor* bias, int groups, float eps);

}  // namespace danqing::kernels
