// Reads a tokenizer.json: vocabulary and merges, by far most of it, go straight into packed form, the rest into a Json.
#pragma once
#include <string>
#include <string_view>

#include "base/json.h"
#include "text/vocabulary.h"

namespace danqing {

struct TokenizerJson {
  Json rest;  ///< the document without model.vocab and model.merges
  BpeSource bpe;
};

/// Error: not JSON, nested too deeply, vocab not an object of integers, a merge that isn't two texts.
Result<TokenizerJson> parse_tokenizer_json(std::string_view text, const std::string& where);

}  // namespace danqing
