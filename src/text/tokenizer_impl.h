// What a Tokenizer consists of; shared by loading and use.
#pragma once
#include <map>

#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/normalizer.h"
#include "text/post_processor.h"
#include "text/pre_tokenizer.h"
#include "text/tokenizer.h"

namespace danqing {

struct Tokenizer::Impl {
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  Bpe bpe;
  AddedTokens added;
  PostProcessor post;
  bool byte_level_decoder = false;  // otherwise tokens are joined with spaces
  bool split_special_tokens = false;
  bool truncate_left = false;
  std::optional<int64_t> max_length;
  std::map<std::string, std::string, std::less<>> named;  // "bos_token" -> "<s>"

  std::optional<int32_t> id_of(std::string_view token) const;
  std::optional<int32_t> named_id(std::string_view name) const;
  int32_t end_id() const { return std::max(bpe.vocabulary().size(), added.end_id()); }
  std::string_view text(int32_t id) const;  // empty if unknown
  Result<void> encode_plain(std::string_view text, Bpe::Scratch& scratch, TokenIds& ids) const;
  Result<void> encode_piece(std::string_view text, Bpe::Scratch& scratch, TokenIds& ids) const;
};

}  // namespace danqing
