// The pre-tokenizer of a tokenizer.json: cuts text into the pieces that BPE never merges across.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "text/regex.h"

namespace danqing {

/// Text and the pieces it is cut into, in order, none empty. Steps may rewrite the text (byte-level alphabet).
struct Pieces {
  std::string text;
  std::vector<Span> spans;
};

/// What becomes of the matches of a Split.
enum class SplitBehavior { isolated, removed, merged_with_previous, merged_with_next, contiguous };

class PreTokenizer {
 public:
  /// `j` may be null (no cutting). Error: a kind or option that this build cannot read, an invalid pattern.
  static Result<PreTokenizer> from_json(const Json* j, const std::string& where);
  Result<void> run(Pieces& pieces) const;

 private:
  struct Step {
    std::shared_ptr<const Regex> regex;  // null: no cutting
    SplitBehavior behavior = SplitBehavior::isolated;
    bool invert = false;
    bool byte_level = false;
    bool add_prefix_space = false;
  };
  Result<void> add(const Json& j, const std::string& where);
  static Result<void> split(const Step& step, Pieces& pieces);
  std::vector<Step> steps_;
};

}  // namespace danqing
