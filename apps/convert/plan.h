// Which tensor gets which dtype: decided from headers alone, before anything is written.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/tensor_source.h"

namespace danqing::app {

/// --tensor-type PATTERN=TYPE
struct TypeRule {
  std::string pattern;  ///< whole name with * and ?, or a part of the name when it has neither
  enum class Action { convert, keep, drop } action = Action::convert;
  DType dtype = DType::f32;
};

struct PlannedTensor {
  const TensorInfo* stored = nullptr;
  DType dtype = DType::f32;  ///< in the output
  bool with_scale = false;   ///< FP8 with a scale of its own beside it
  std::string_view reason;   ///< why it is not the asked type; empty when it is
};

/// "q4_K", "fp8", "bf16", ...: what convert can write. Usage error lists them. `format` decides what exists.
Result<DType> parse_type(std::string_view text, TensorSource::Format format, std::string_view option);
/// "PATTERN=TYPE"; TYPE may also be keep or drop.
Result<TypeRule> parse_rule(std::string_view text, TensorSource::Format format);
bool matches(std::string_view pattern, std::string_view name);

/// In the order of the file. Norms and biases, modulation, the projections at both ends and convolutions keep 16 or 32
/// bits; embeddings get at least q6_K; rows that are no whole blocks fall back to q8_0 or stay. A later rule wins.
/// `matched[i]` is set for every rule that meets a tensor. Errors (usage): a rule's type that does not fit a tensor; a
/// tensor that the format cannot hold.
Result<std::vector<PlannedTensor>> plan_types(const TensorSource& source, DType type,
                                              const std::vector<TypeRule>& rules, TensorSource::Format format,
                                              std::vector<bool>& matched);

}  // namespace danqing::app
