// Byte-pair encoding of one piece of text (Sennrich et al. 2016), in n log n steps.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/vocabulary.h"

namespace danqing {

class Bpe {
 public:
  /// `model`: the `model` object of a tokenizer.json without the parts that are in `source`.
  /// Error: not BPE, merges of unknown tokens, options that would make the result random.
  static Result<Bpe> build(const JsonObject& model, BpeSource source, const std::string& where);

  /// Working memory that successive calls share.
  struct Scratch {
    struct Symbol {
      int32_t id, previous, next;  // id -1: merged into its left neighbour
      int32_t rank, merged;        // of the merge with the right neighbour; rank -1: there is none
    };
    std::vector<Symbol> symbols;
    std::vector<uint64_t> heap;  // rank << 32 | position: the lowest rank first, then the leftmost
  };
  /// Appends the ids of `word` (fewer than 2^31 bytes of valid UTF-8).
  void encode(std::string_view word, Scratch& scratch, std::vector<int32_t>& out) const;
  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  /// (left, right) -> rank and merged id: open addressing, for this lookup is where the time goes.
  class MergeTable {
   public:
    struct Merge {
      uint64_t pair = kEmpty;
      int32_t rank = 0, id = 0;
    };
    void reserve(size_t merges);
    void put(int32_t left, int32_t right, int32_t rank, int32_t id);
    const Merge* find(int32_t left, int32_t right) const;

   private:
    static constexpr uint64_t kEmpty = ~uint64_t{0};
    size_t slot(uint64_t pair) const;
    std::vector<Merge> slots_;
    int shift_ = 63;
  };

  Result<void> add_merges(const BpeSource& source, const std::string& where);
  void split(std::string_view word, Scratch& s) const;
  bool look_up(Scratch& s, int32_t left) const;
  void merge(Scratch& s) const;

  Vocabulary vocabulary_;
  MergeTable merges_;
  std::vector<int32_t> low_chars_;  // ids of the single characters below U+0800
  std::string prefix_, suffix_;     // continuing_subword_prefix, end_of_word_suffix
  std::vector<int32_t> byte_ids_;   // ids of <0x00> to <0xFF>; empty without byte_fallback
  int32_t unk_id_ = -1;
  bool fuse_unk_ = false, ignore_merges_ = false;
};

}  // namespace danqing
