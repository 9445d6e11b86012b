// Added and special tokens: text that is an id of its own and is cut out before anything else looks at the text.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json.h"
#include "text/normalizer.h"
#include "text/regex.h"
#include "text/vocabulary.h"

namespace danqing {

struct AddedToken {
  int32_t id = -1;
  std::string content;
  bool special = false;
  bool single_word = false;             ///< only where no word character touches it
  bool lstrip = false, rstrip = false;  ///< takes the white space on its left / right with it
  bool normalized = false;              ///< looked for in the normalised text

  /// An object of `added_tokens` or `added_tokens_decoder`, or a plain string (then special).
  static Result<AddedToken> from_json(const Json& j, const std::string& where);
};

/// A text cut at added tokens: `id` is -1 for what lies between them.
struct Segment {
  Span span;
  int32_t id = -1;
};

class AddedTokens {
 public:
  /// Error: id out of range or belonging to another token, text that is another id in the vocabulary, overlong text.
  Result<void> add(const AddedToken& token, const Vocabulary& vocabulary, const std::string& where);
  /// Call once after the last add().
  Result<void> finish(const Normalizer& normalizer);

  /// Leftmost longest matches of the tokens that are looked for in raw / normalised text.
  /// `keep_special_text`: special tokens are not cut out (split_special_tokens).
  std::vector<Segment> cut(std::string_view text, bool normalized, bool keep_special_text) const;

  const AddedToken* find(int32_t id) const;
  const AddedToken* find(std::string_view content) const;
  int32_t end_id() const { return tokens_.empty() ? 0 : tokens_.rbegin()->first + 1; }  ///< highest id + 1

 private:
  struct Node {
    int32_t id = -1;  // token that ends here
    int32_t child = -1, sibling = -1;
    char byte = 0;
  };
  struct Trie {
    std::array<int32_t, 256> roots;
    std::vector<Node> nodes;
    Trie() { roots.fill(-1); }
    void add(std::string_view text, int32_t id);
    /// The longest token at the beginning of `text`: its bytes (0 if none) and id.
    size_t longest(std::string_view text, int32_t& id) const;
  };
  std::map<int32_t, AddedToken> tokens_;
  std::unordered_map<std::string, int32_t> by_content_;
  Trie raw_, normalized_;
};

}  // namespace danqing
