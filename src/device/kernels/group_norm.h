// Group norm of pictures with their channels side by side (channels_last.h). Wu & He 2018.
#pragma once
#include "device/kernels/op.h"

namespace danqing::kernels {

/// x [B, C, H, W] in any order, weight and bias [C] or null -> a view [B, C, H, W]. Two operations: the statistics
/// [B, 3, C] (mean, factor and shift of every channel), and their application, which the next convolution takes over.
ggml_tensor* group_norm(Graph& g, ggml_tensor* x, ggml_tensor* weight, ggml_tensor* bias, int groups, float eps);

/// Mean and sum of squared deviations from it of every channel of x [B, C, H, W] -> [B, 2, C].
ggml_tensor* channel_statistics(Graph& g, ggml_tensor* x);
/// As group_norm with `given` [2, C] (mean, 1 / sqrt(variance + eps)) of every channel.
ggml_tensor* normalise(Graph& g, ggml_tensor* x, ggml_tensor* given, ggml_tensor* weight, ggml_tensor* bias);

}  // namespace danqing::kernels
