#include "text/tokenizer.h"

#include <algorithm>
#include <unordered_map>

#include "base/try.h"
#include "text/byte_level.h"
#include "text/tokenizer_impl.h"
#include "text/utf8.h"

namespace danqing {
namespace {

constexpr size_t kMaxText = size_t{64} << 20;
constexpr size_t kCacheWords = 8192;
constexpr size_t kCacheWordBytes = 64;

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

std::optional<int32_t> Tokenizer::Impl::id_of(std::string_view token) const {
  if (const AddedToken* t = added.find(token)) return t->id;
  const int32_t id = bpe.vocabulary().id_of(token);
  return id < 0 ? std::nullopt : std::optional<int32_t>(id);
}

std::optional<int32_t> Tokenizer::Impl::named_id(std::string_view name) const {
  const auto it = named.find(name);
  return it == named.end() ? std::nullopt : id_of(it->second);
}

std::string_view Tokenizer::Impl::text(int32_t id) const {
  if (const AddedToken* t = added.find(id)) return t->content;
  return bpe.vocabulary().text(id);
}

Result<void> Tokenizer::Impl::encode_piece(std::string_view text, Bpe::Scratch& scratch, TokenIds& ids) const {
  Pieces pieces{std::string(text), {{0, text.size()}}};
  DQ_CHECK(pre_tokenizer.run(pieces));
  struct Seen {
    size_t begin, count;  // in ids
  };
  std::unordered_map<std::string_view, Seen> cache;
  for (const Span s : pieces.spans) {
    const std::string_view word = std::string_view(pieces.text).substr(s.begin, s.size());
    const bool cacheable = word.size() <= kCacheWordBytes;
    if (cacheable) {
      if (const auto it = cache.find(word); it != cache.end()) {
        for (size_t i = 0; i < it->second.count; ++i) ids.push_back(ids[it->second.begin + i]);
        continue;
      }
    }
    const size_t begin = ids.size();
    bpe.encode(word, scratch, ids);
    if (cacheable && cache.size() < kCacheWords) cache.emplace(word, Seen{begin, ids.size() - begin});
  }
  return {};
}

Result<void> Tokenizer::Impl::encode_plain(std::string_view text, Bpe::Scratch& scratch, TokenIds& ids) const {
  std::string normalized;
  if (!normalizer.changes_nothing()) {
    DQ_TRY(normalized, normalizer.apply(text));
    text = normalized;
  }
  for (const Segment& s : added.cut(text, true, split_special_tokens)) {
    if (s.id >= 0) {
      ids.push_back(s.id);
    } else {
      DQ_CHECK(encode_piece(text.substr(s.span.begin, s.span.size()), scratch, ids));
    }
  }
  return {};
}

Result<TokenIds> Tokenizer::encode(std::string_view text, bool add_special_tokens, bool truncate) const {
  if (text.size() > kMaxText)
    return usage_error("[tokenizer] expected a text of at most {} bytes, got {}", kMaxText, text.size());
  std::string clean;
  if (!utf8::is_valid(text)) {
    clean = utf8::sanitize(text);
    text = clean;
  }
  TokenIds ids;
  Bpe::Scratch scratch;
  for (const Segment& s : impl_->added.cut(text, false, impl_->split_special_tokens)) {
    if (s.id >= 0) {
      ids.push_back(s.id);
    } else {
      DQ_CHECK(impl_->encode_plain(text.substr(s.span.begin, s.span.size()), scratch, ids));
    }
  }
  const PostProcessor none;
  const PostProcessor& post = add_special_tokens ? impl_->post : none;
  if (truncate && impl_->max_length) {
    const auto limit = static_cast<size_t>(*impl_->max_length), extra = post.before.size() + post.after.size();
    const size_t keep = limit > extra ? limit - extra : 0;
    if (ids.size() > keep) {
      const auto drop = static_cast<std::ptrdiff_t>(ids.size() - keep);
      const auto from = impl_->truncate_left ? ids.begin() : ids.end() - drop;
      ids.erase(from, from + drop);
    }
  }
  ids.insert(ids.begin(), post.before.begin(), post.before.end());
  ids.insert(ids.end(), post.after.begin(), post.after.end());
  return ids;
}

std::string Tokenizer::token_bytes(int32_t id) const {
  const std::string_view text = impl_->text(id);
  if (impl_->byte_level_decoder)
    if (auto bytes = byte_level::decoded(text)) return *std::move(bytes);
  return std::string(text);
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  std::string bytes;
  bool first = true;
  for (const int32_t id : ids) {
    if (impl_->text(id).empty() || (skip_special_tokens && is_special(id))) continue;
    if (!first && !impl_->byte_level_decoder) bytes += ' ';
    first = false;
    bytes += token_bytes(id);
  }
  return utf8::sanitize(bytes);
}

int32_t Tokenizer::vocab_size() const { return impl_->end_id(); }
std::optional<int32_t> Tokenizer::bos_id() const { return impl_->named_id("bos_token"); }
std::optional<int32_t> Tokenizer::eos_id() const { return impl_->named_id("eos_token"); }
std::optional<int32_t> Tokenizer::pad_id() const { return impl_->named_id("pad_token"); }
std::optional<int32_t> Tokenizer::id_of(std::string_view token) const { return impl_->id_of(token); }

bool Tokenizer::is_special(int32_t id) const {
  const AddedToken* t = impl_->added.find(id);
  return t && t->special;
}

std::optional<int64_t> Tokenizer::model_max_length() const { return impl_->max_length; }
const std::string& Tokenizer::bos_token() const { return named_token("bos_token"); }
const std::string& Tokenizer::eos_token() const { return named_token("eos_token"); }

const std::string& Tokenizer::named_token(std::string_view name) const {
  static const std::string none;
  const auto it = impl_->named.find(name);
  return it == impl_->named.end() ? none : it->second;
}

}  // namespace danqing
