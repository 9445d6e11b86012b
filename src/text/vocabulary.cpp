#include "text/vocabulary.h"

#include <algorithm>

#include "base/text.h"
#include "base/try.h"

namespace danqing {

Result<Vocabulary> Vocabulary::build(BpeSource& source, const std::string& where) {
  Vocabulary v;
  v.texts_ = std::move(source.token_text);
  v.texts_.push_back('\0');  // so that an empty token has an address too
  int64_t highest = -1;
  for (const BpeSource::Token& t : source.tokens) {
    if (t.id < 0 || t.id > kMaxTokenId)
      return bad_input("[tokenizer] {}: expected token ids from 0 to {}, got {}", where, kMaxTokenId, t.id);
    highest = std::max(highest, t.id);
  }
  v.by_text_.reserve(source.tokens.size());
  v.by_id_.resize(static_cast<size_t>(highest + 1));
  for (const BpeSource::Token& t : source.tokens) {
    const std::string_view text(v.texts_.data() + t.begin, t.size);
    std::string_view& slot = v.by_id_[static_cast<size_t>(t.id)];
    if (slot.data())
      return bad_input("[tokenizer] {}: the tokens '{}' and '{}' have the same id {}", where, one_line(slot),
                       one_line(text), t.id);
    slot = text;
    if (!v.by_text_.emplace(text, static_cast<int32_t>(t.id)).second)
      return bad_input("[tokenizer] {}: the token '{}' is in the vocabulary twice", where, one_line(text));
  }
  return v;
}

int32_t Vocabulary::id_of(std::string_view token) const {
  const auto it = by_text_.find(token);
  return it == by_text_.end() ? -1 : it->second;
}

std::string_view Vocabulary::text(int32_t id) const {
  return has(id) ? by_id_[static_cast<size_t>(id)] : std::string_view();
}

}  // namespace danqing
