// A byte-level tokenizer small enough to read: the 256 bytes (id = byte) and five merges.
#pragma once
#include "base/file.h"
#include "base/json.h"
#include "testing/testing.h"
#include "text/byte_level.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace danqing::testing {

inline std::string byte_char(size_t byte) {
  std::string s;
  utf8::append(s, byte_level::alphabet()[byte]);
  return s;
}

/// Ids 256 "aa", 257 "aaaa", 258 " a", 259 "bc", 260 "abc".
inline Json small_tokenizer() {
  Json vocab = Json::object(), merges = Json::array();
  for (size_t b = 0; b < 256; ++b) vocab[byte_char(b)] = b;
  const std::string space = byte_char(' ');
  const std::pair<std::string, std::string> pairs[] = {{"a", "a"}, {"aa", "aa"}, {space, "a"}, {"b", "c"}, {"a", "bc"}};
  for (const auto& [left, right] : pairs) {
    merges.push_back(left + " " + right);
    vocab[left + right] = vocab.size();
  }
  return {{"added_tokens", Json::array()},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}},
          {"post_processor", nullptr},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", merges}}}};
}

inline Json added(int id, const std::string& content, const Json& flags = Json::object()) {
  Json j = {{"id", id}, {"content", content}, {"special", true}, {"normalized", false}};
  j.update(flags);
  return j;
}

inline Result<std::shared_ptr<const Tokenizer>> load_tokenizer(const Json& tokenizer, const Json& config = nullptr) {
  const TempDir dir;
  EXPECT_TRUE(write_file(dir / "tokenizer.json", dump_json(tokenizer)).ok());
  if (!config.is_null()) {
    EXPECT_TRUE(write_file(dir / "tokenizer_config.json", dump_json(config)).ok());
  }
  return Tokenizer::load(dir.path());
}

/// The tokens of `text` with bars between them; for messages and tables.
inline std::string tokens_of(const Json& tokenizer, const std::string& text) {
  auto t = load_tokenizer(tokenizer);
  if (!t) return t.error().message;
  auto ids = (*t)->encode(text, false);
  if (!ids) return ids.error().message;
  std::string out;
  for (const int32_t id : *ids) out += (out.empty() ? "" : "|") + (*t)->token_bytes(id);
  return out;
}

}  // namespace danqing::testing
