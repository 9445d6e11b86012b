#include "text/added_tokens.h"

#include "base/text.h"
#include "base/try.h"
#include "text/utf8.h"

namespace danqing {
namespace {

constexpr size_t kMaxContent = 1024;  // matching looks this far ahead at every byte

}  // namespace

Result<AddedToken> AddedToken::from_json(const Json& j, const std::string& where) {
  AddedToken t;
  if (j.is_string()) {
    t.content = j.get<std::string>();
    t.special = true;
    return t;
  }
  DQ_TRY(const JsonObject o, JsonObject::of(j, where));
  DQ_TRY(t.content, o.string("content"));
  DQ_TRY(t.special, o.boolean("special", false));
  DQ_TRY(t.single_word, o.boolean("single_word", false));
  DQ_TRY(t.lstrip, o.boolean("lstrip", false));
  DQ_TRY(t.rstrip, o.boolean("rstrip", false));
  DQ_TRY(t.normalized, o.boolean("normalized", !t.special));
  return t;
}

Result<void> AddedTokens::add(const AddedToken& t, const Vocabulary& vocabulary, const std::string& where) {
  if (t.content.empty()) return {};  // matches nothing
  if (t.content.size() > kMaxContent)
    return bad_input("[tokenizer] {}: expected an added token of at most {} bytes, got {}", where, kMaxContent,
                     t.content.size());
  if (t.id < 0 || t.id > kMaxTokenId)
    return bad_input("[tokenizer] {}: expected an id from 0 to {} for the added token '{}', got {}", where, kMaxTokenId,
                     one_line(t.content), t.id);
  const int32_t known = vocabulary.id_of(t.content);
  if (known >= 0 && known != t.id)
    return bad_input("[tokenizer] {}: the added token '{}' has id {}, but {} in the vocabulary", where,
                     one_line(t.content), t.id, known);
  if (known < 0 && vocabulary.has(t.id))
    return bad_input("[tokenizer] {}: the added token '{}' has id {}, which is '{}' in the vocabulary", where,
                     one_line(t.content), t.id, one_line(vocabulary.text(t.id)));
  if (const AddedToken* other = find(t.id); other && other->content != t.content)
    return bad_input("[tokenizer] {}: the added tokens '{}' and '{}' have the same id {}", where,
                     one_line(other->content), one_line(t.content), t.id);
  if (const AddedToken* other = find(t.content); other && other->id != t.id)
    return bad_input("[tokenizer] {}: the added token '{}' has the two ids {} and {}", where, one_line(t.content),
                     other->id, t.id);
  tokens_[t.id] = t;
  by_content_[t.content] = t.id;
  return {};
}

Result<void> AddedTokens::finish(const Normalizer& normalizer) {
  for (const auto& [id, token] : tokens_) {
    if (!token.normalized) {
      raw_.add(token.content, id);
      continue;
    }
    DQ_TRY(const std::string content, normalizer.apply(token.content));
    normalized_.add(content, id);
  }
  return {};
}

const AddedToken* AddedTokens::find(int32_t id) const {
  const auto it = tokens_.find(id);
  return it == tokens_.end() ? nullptr : &it->second;
}

const AddedToken* AddedTokens::find(std::string_view content) const {
  const auto it = by_content_.find(std::string(content));
  return it == by_content_.end() ? nullptr : find(it->second);
}

void AddedTokens::Trie::add(std::string_view text, int32_t id) {
  int32_t* link = &roots[static_cast<unsigned char>(text[0])];
  for (size_t i = 0;; ++i) {
    while (*link >= 0 && nodes[static_cast<size_t>(*link)].byte != text[i])
      link = &nodes[static_cast<size_t>(*link)].sibling;
    if (*link < 0) {
      *link = static_cast<int32_t>(nodes.size());
      const int32_t at = *link;
      nodes.push_back({-1, -1, -1, text[i]});  // may move the nodes: link is not used after this
      link = nullptr;
      if (i + 1 < text.size()) {
        link = &nodes[static_cast<size_t>(at)].child;
        continue;
      }
      nodes[static_cast<size_t>(at)].id = id;
      return;
    }
    Node& node = nodes[static_cast<size_t>(*link)];
    if (i + 1 == text.size()) {
      if (node.id < 0) node.id = id;
      return;
    }
    link = &node.child;
  }
}

size_t AddedTokens::Trie::longest(std::string_view text, int32_t& id) const {
  size_t length = 0;
  int32_t at = roots[static_cast<unsigned char>(text[0])];
  for (size_t i = 0; at >= 0;) {
    const Node& node = nodes[static_cast<size_t>(at)];
    if (node.byte != text[i]) {
      at = node.sibling;
      continue;
    }
    ++i;
    if (node.id >= 0) {
      length = i;
      id = node.id;
    }
    if (i == text.size()) break;
    at = node.child;
  }
  return length;
}

std::vector<Segment> AddedTokens::cut(std::string_view text, bool normalized, bool keep_special_text) const {
  const Trie& trie = normalized ? normalized_ : raw_;
  std::vector<Segment> out;
  size_t done = 0;
  for (size_t i = 0; i < text.size();) {
    int32_t id = -1;
    const size_t length = trie.longest(text.substr(i), id);
    if (length == 0) {
      ++i;
      continue;
    }
    size_t begin = i, end = i + length;
    i = end;
    const AddedToken& t = *find(id);
    if (keep_special_text && t.special) continue;
    if (t.single_word && (utf8::ends_with_word(text.substr(0, begin)) || utf8::starts_with_word(text.substr(end))))
      continue;
    // White space that the token before has taken already is not taken again.
    if (begin < done) {
      if (end <= done) continue;
      begin = done;
    }
    if (t.lstrip) begin -= utf8::trailing_space(text.substr(done, begin - done));
    if (t.rstrip) end += utf8::leading_space(text.substr(end));
    if (done < begin) out.push_back({{done, begin}, -1});
    out.push_back({{begin, end}, id});
    done = end;
  }
  if (done < text.size()) out.push_back({{done, text.size()}, -1});
  return out;
}

}  // namespace danqing
