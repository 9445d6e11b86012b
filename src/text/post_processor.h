// The post-processor of a tokenizer.json, reduced to the ids that it puts before and after the text.
#pragma once
#include <string>

#include "base/json.h"
#include "text/tokenizer.h"

namespace danqing {

struct PostProcessor {
  TokenIds before, after;

  /// `j` may be null. TemplateProcessing (its `single` template), ByteLevel and Sequence. Error: another kind, a
  /// template that uses the text not exactly once, a special token that it does not define, an id outside [0,
  /// vocab_size).
  static Result<PostProcessor> from_json(const Json* j, int32_t vocab_size, const std::string& where);
};

}  // namespace danqing
