// Token texts and their ids.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "danqing/result.h"

namespace danqing {

inline constexpr int64_t kMaxTokenId = (int64_t{1} << 24) - 1;  ///< memory grows with the highest id

/// The vocabulary and merges of a BPE model as they stand in the file, texts packed one behind the other.
struct BpeSource {
  struct Token {
    size_t begin;
    uint32_t size;
    int64_t id;
  };
  struct Merge {
    size_t begin;
    uint32_t left, right;  // bytes of the two parts
  };
  std::vector<char> token_text, merge_text;
  std::vector<Token> tokens;
  std::vector<Merge> merges;
  bool has_vocab = false, has_merges = false;
};

class Vocabulary {
 public:
  /// Takes the token texts of `source`. Error: an id negative, too large or used twice, a text twice.
  static Result<Vocabulary> build(BpeSource& source, const std::string& where);
  int32_t id_of(std::string_view token) const;  ///< -1 if unknown
  std::string_view text(int32_t id) const;      ///< empty if unknown
  bool has(int32_t id) const { return id >= 0 && id < size() && by_id_[static_cast<size_t>(id)].data() != nullptr; }
  int32_t size() const { return static_cast<int32_t>(by_id_.size()); }  ///< highest id + 1

 private:
  std::vector<char> texts_;  // the views below point into it; moving a vector keeps its storage
  std::unordered_map<std::string_view, int32_t> by_text_;
  std::vector<std::string_view> by_id_;
};

}  // namespace danqing
