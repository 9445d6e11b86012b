// Tokenizers from `tokenizer.json` (byte-level BPE as Tekken and Qwen ship it) + `tokenizer_config.json`.
// Thread rule: immutable after load(); encode and decode from any number of threads.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "danqing/result.h"

namespace danqing {

using TokenIds = std::vector<int32_t>;

class Tokenizer {
 public:
  /// `path`: a directory with tokenizer.json (+ tokenizer_config.json, special_tokens_map.json), or a tokenizer.json
  /// alone. Error bad_input: a file is missing, damaged, contradicts itself or asks for something that this build
  /// cannot do.
  static Result<std::shared_ptr<const Tokenizer>> load(const std::filesystem::path& path);
  ~Tokenizer();

  /// Text to ids. Special-token text becomes the special id (unless the config says split_special_tokens). Invalid
  /// UTF-8 bytes count as U+FFFD, NUL is text. `add_special_tokens`: what the post-processor (or
  /// add_bos_token/add_eos_token) adds. Cut to model_max_length ids, added ones included, if `truncate`. Time n log n
  /// for any text. Errors are limits only: more than 64 MiB of text (usage), a pattern of the file that backtracks
  /// without end (bad_input).
  Result<TokenIds> encode(std::string_view text, bool add_special_tokens, bool truncate = false) const;
  /// Ids to text; unknown ids are skipped; incomplete UTF-8 becomes U+FFFD, one per maximal subpart.
  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens) const;
  /// The raw bytes of one token, for streaming output (a character may span tokens).
  std::string token_bytes(int32_t id) const;

  int32_t vocab_size() const;  ///< highest id + 1, added tokens included
  std::optional<int32_t> bos_id() const, eos_id() const, pad_id() const;
  std::optional<int32_t> id_of(
      std::string_view token) const;  ///< a special/added token or a vocabulary entry by its text
  bool is_special(int32_t id) const;
  /// From tokenizer_config.json; empty when absent or astronomically large (1e30).
  std::optional<int64_t> model_max_length() const;
  /// Token text for templates ("<s>"), empty if tokenizer_config.json names none.
  const std::string& bos_token() const;
  const std::string& eos_token() const;
  const std::string& named_token(std::string_view name) const;  ///< by its key there: "pad_token", "unk_token"

 private:
  friend class TokenizerConfigReader;
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace danqing
