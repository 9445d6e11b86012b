// softmax(q k^T * scale + mask) v without the matrix of scores in memory.
#pragma once
#include "device/kernels/op.h"

namespace danqing::kernels {

/// As nn::attention: q [B, Tq, Hq, D], k and v [B, Tk, Hkv, D] (f32, f16 or bf16; any strides, the last axis dense),
/// mask null or [B or 1, 1, Tq or 1, Tk] f32 -> [B, Tq, Hq*D]. Keys come block by block with a running maximum and sum
/// (Milakov & Gimelshein 2018; Dao et al. 2022), all in f32, but for the two products where the values are
/// made_of_integers() and D is one or two blocks of kBlockK. A query whose keys are all masked gives zeros.
ggml_tensor* attention(Graph& g, ggml_tensor* q, ggml_tensor* k, ggml_tensor* v, ggml_tensor* mask, float scale);
bool attends(ggml_type kv);

}  // namespace danqing::kernels
