// What a model expects to find in a checkpoint, and the match between that and what a file holds.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/tensor_source.h"

namespace danqing {

/// How a weight is used; decides in which dtype it may be kept on a device.
enum class WeightUse {
  matrix,  ///< [out, in] of a linear layer: any dtype that the device multiplies with
  table,   ///< an embedding table, perhaps a linear layer too: any dtype of ggml's
  vector,  ///< norms, biases, statistics: always f32 on the device
  kernel,  ///< [out, in, kh, kw] of a convolution
};

/// One expected tensor under our own name (= the diffusers/transformers name without prefixes).
struct TensorSpec {
  std::string name;
  Shape shape;  ///< exact; [1x1 kernels may be stored as 2-D matrices, one row as a vector, and the reverse]
  WeightUse use = WeightUse::matrix;
  bool optional = false;
  int group = -1;  ///< the layer it belongs to, counted from 0 in the order in which a pass uses them; -1: to none
};

/// Foreign names as data: ours = strip one of `prefixes` (none given: ""), then replace by `aliases`: one pass from the
/// left, the longest match first, each match beginning at a part of the name (its start, or at or behind a dot).
/// Names outside the prefix serve the specs that none inside it serves ("lm_head." beside "model.layers.").
struct NameMap {
  struct Alias {
    std::string from;  ///< beginning or middle part of a foreign name, e.g. "decoder.post_quant_conv."
    std::string to;    ///< our spelling, e.g. "post_quant_conv."
  };
  std::vector<std::string>
      prefixes;  ///< tried in this order, then in pairs; the one under which most specs are found wins
  std::vector<Alias> aliases;
  std::vector<std::string> ignored;  ///< prefixes of tensors that may be present and unused ("vision_tower.")
};

/// Every spec with the stored tensor that serves it.
struct BoundTensor {
  TensorSpec spec;
  const TensorInfo* stored = nullptr;  ///< owned by source; null for an absent optional tensor
};
struct BoundTensors {
  std::shared_ptr<const TensorSource> source;
  std::vector<BoundTensor> tensors;
  std::vector<std::string> unused;  ///< names under the prefix that no spec asked for and `ignored` does not cover
  const BoundTensor* find(std::string_view name) const;
};

/// Call it as danqing::bind: argument-dependent lookup would find std::bind too.
/// Matches; error (bad_input) names file, tensor, expected and got: the first missing tensor (with the number of
/// others) or the first wrong shape. Two foreign names that map to one of ours are an error.
Result<BoundTensors> bind(std::shared_ptr<const TensorSource> source, const std::vector<TensorSpec>& specs,
                          const NameMap& names, const std::string& model_name);

}  // namespace danqing
